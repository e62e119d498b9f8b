"""The run files that are shipped, by name: ``herd train pong``."""

from __future__ import annotations

from pathlib import Path

from herd.config.layers import SettingsError, close_match

_FOLDER = Path(__file__).parents[1] / "experiments"


def shipped_experiments() -> dict[str, Path]:
    """Name -> run file, in alphabetical order."""
    return {file.stem: file for file in sorted(_FOLDER.glob("*.yaml"), key=lambda file: file.stem)}


def find_run_file(file: Path) -> Path:
    """Return the run file that a command line means: a path unchanged, a bare word as a file of this folder or a shipped experiment.

    Raises:
        SettingsError: a bare word that names neither. Whether a path exists is not checked.

    """
    name = str(file)
    if file.name != name or file.suffix or (file.exists() and not file.is_dir()):
        return file
    shipped = shipped_experiments()
    if name not in shipped:
        raise SettingsError(f"{name}: no such file or experiment{close_match(name, shipped)} (herd experiments lists them)")
    return shipped[name]


def describe(file: Path) -> str:
    """First line of the comment that a run file begins with."""
    with file.open(encoding="utf-8") as lines:
        return lines.readline().removeprefix("#").strip()
