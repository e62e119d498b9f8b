"""The shipped run files by name: ``herd train pong``, or ``herd train pong atari-machado`` with a preset of the suite."""

from __future__ import annotations

from pathlib import Path

from herd.components.suites import SUITES, suite_named
from herd.config.errors import SettingsError, close_match

_FOLDER = Path(__file__).parents[1] / "experiments"


def shipped_experiments() -> dict[str, Path]:
    """Name -> run file, in alphabetical order."""
    return {file.stem: file for file in sorted(_FOLDER.glob("*.yaml"), key=lambda file: file.stem)}


def suite_presets() -> dict[str, Path]:
    """Name -> run file that sets an evaluation protocol of a suite, to be given after an experiment; in alphabetical order."""
    folders = ((name, suite_named(name).presets) for name in SUITES.parts)
    files = ((name, file) for name, folder in folders if folder is not None for file in sorted(folder.glob("*.yaml")))
    return {f"{name}-{file.stem}": file for name, file in files}


def find_run_file(file: Path) -> Path:
    """Return the run file that a word on the command line means.

    A path is returned unchanged. A bare word is a file in this folder, an experiment or a suite's preset.

    Raises:
        SettingsError: a bare word that is none of these. Whether a path exists is not checked.

    """
    name = str(file)
    if file.name != name or file.suffix or (file.exists() and not file.is_dir()):
        return file
    shipped = shipped_experiments() | suite_presets()
    if name not in shipped:
        raise SettingsError(f"{name}: no such file or experiment{close_match(name, shipped)} (herd experiments lists them)")
    return shipped[name]


def describe(file: Path) -> str:
    """Return the first line of the comment at the beginning of a run file."""
    with file.open(encoding="utf-8") as lines:
        return lines.readline().removeprefix("#").strip()
