"""``herd.train``: what ``herd train`` does, from a script or a notebook."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from herd.api.runs import Run, RunError
from herd.config.errors import SettingsError
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.launch.program import start_training, stop_training
from herd.launch.run_directory import RunDirectoryError, claim_run_directory
from herd.run.paths import CONFIG
from herd.service import EXIT_BAD_INPUT

if TYPE_CHECKING:
    Source = RunSettings | Mapping[str, object] | Path | str | Sequence[Path | str]


def train(settings: Source | None = None, /, *, progress: bool = True, **overrides: object) -> Run:
    """Train on this machine until a stop condition of the settings is met, and return the run.

    The processes of the run are separate programs. Your process is not forked, so you need no ``if __name__ == "__main__"`` and can call
    this from any thread. If you interrupt it (Ctrl-C, a notebook's stop button), the run stops cleanly and writes a checkpoint and a
    report; a second interruption kills it.

    Args:
        settings: a run file, the name of a shipped experiment (``"catch"``), several of these, a mapping of settings, or a `RunSettings`.
            To continue a run with its own settings, leave this out and give ``resume=True`` and ``run_dir``.
        progress: whether to print what ``herd train`` prints.
        overrides: settings by section, ``learner={"batch_size": 64}, seed=3``, or by dotted key, ``**{"learner.batch_size": 64}``. They
            take precedence over files and over the environment (``HERD_...``).

    Raises:
        SettingsError: the settings cannot be used.
        RunError: the run failed. The message is the one that ``herd train`` prints; the logs are in the run directory.

    """
    resolved = resolve_settings(settings, overrides)
    fresh = not resolved.resume
    try:
        resolved = claim_run_directory(resolved)
    except RunDirectoryError as error:
        raise RunError(str(error)) from error
    code, said = _run(resolved, progress=progress)
    if code == EXIT_BAD_INPUT:
        if fresh:
            with suppress(OSError):  # not empty
                resolved.directory.rmdir()
        raise SettingsError(_reason(said))
    if code:
        raise RunError(f"{resolved.directory}: {_reason(said)}")
    if progress and said:
        print(said, end="", file=sys.stderr)
    return Run(resolved.directory)


def resolve_settings(settings: Source | None, overrides: Mapping[str, object]) -> RunSettings:
    """Return the settings from the arguments of ``train``.

    Raises:
        SettingsError: they cannot be used, or none are given.

    """
    if isinstance(settings, RunSettings):
        return load_settings([], [], {}, base=settings.model_dump(mode="json"), given=overrides)
    if isinstance(settings, Mapping):
        return load_settings([], [], os.environ, base=settings, given=overrides)
    if settings is None:
        directory = overrides.get("run_dir")
        if not overrides.get("resume") or not isinstance(directory, str | Path):
            raise SettingsError("train needs a run file, the name of an experiment, or resume=True and run_dir")
        if not (Path(directory) / CONFIG).is_file():
            raise SettingsError(f"{directory}: no such run to resume")
        settings = Path(directory) / CONFIG
    files = [settings] if isinstance(settings, str | Path) else settings
    return load_settings([Path(file) for file in files], [], os.environ, given=overrides)


def _run(settings: RunSettings, *, progress: bool) -> tuple[int, str]:
    """Return the exit code of the run and its output on stderr."""
    live = progress and _is_terminal(sys.stdout)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = start_training(settings, output=None if live else subprocess.PIPE if progress else subprocess.DEVNULL, errors=errors)
        try:
            code = _wait(process)
        finally:
            stop_training(process)
            if process.stdout is not None:
                process.stdout.close()
        errors.seek(0)
        return code, errors.read()


def _wait(process: subprocess.Popen[str]) -> int:
    """Wait for the process to end, and print its lines. In a notebook, a child process cannot write to this process's stdout itself."""
    while True:
        try:
            if process.stdout is not None:
                for line in process.stdout:
                    print(line, end="", flush=True)
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty() and stream.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


def _reason(said: str) -> str:
    """Return the line with the reason, without the name of the command."""
    lines = [line for line in said.splitlines() if line.startswith("herd: ")] or said.splitlines() or ["herd train failed"]
    return lines[-1].removeprefix("herd: ")
