"""The run files that are shipped, by name: ``herd train pong``, or ``herd train pong atari-machado`` with a preset of its suite."""

from __future__ import annotations

from pathlib import Path

from herd.config.layers import SettingsError, close_match
from herd.config.suites import installed_suites

_FOLDER = Path(__file__).parents[1] / "experiments"


def shipped_experiments() -> dict[str, Path]:
    """Name -> run file, in alphabetical order."""
    return {file.stem: file for file in sorted(_FOLDER.glob("*.yaml"), key=lambda file: file.stem)}


def suite_presets() -> dict[str, Path]:
    """Name -> run file that sets a protocol of a suite, to be put behind an experiment; in alphabetical order."""
    folders = ((name, suite.presets) for name, suite in installed_suites().usable.items())
    files = ((name, file) for name, folder in folders if folder is not None for file in sorted(folder.glob("*.yaml")))
    return {f"{name}-{file.stem}": file for name, file in files}


def find_run_file(file: Path) -> Path:
    """Return the run file that a command line means: a path unchanged; a bare word as a file here, an experiment or a suite's preset.

    Raises:
        SettingsError: a bare word that names neither. Whether a path exists is not checked.

    """
    name = str(file)
    if file.name != name or file.suffix or (file.exists() and not file.is_dir()):
        return file
    shipped = shipped_experiments() | suite_presets()
    if name not in shipped:
        raise SettingsError(f"{name}: no such file or experiment{close_match(name, shipped)} (herd experiments lists them)")
    return shipped[name]


def describe(file: Path) -> str:
    """First line of the comment that a run file begins with."""
    with file.open(encoding="utf-8") as lines:
        return lines.readline().removeprefix("#").strip()
