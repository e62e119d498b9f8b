"""``herd.train``: a run as ``herd train`` makes it, from a script or a notebook."""

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

from herd.api.errors import RunError
from herd.api.runs import Run
from herd.config.layers import SettingsError
from herd.config.loading import load_settings
from herd.config.run_files import CONFIG
from herd.config.settings import RunSettings
from herd.supervisor.program import start_training, stop_training
from herd.supervisor.run_directory import RunDirectoryError, claim_run_directory

if TYPE_CHECKING:
    Source = RunSettings | Mapping[str, object] | Path | str | Sequence[Path | str]

_EXIT_BAD_INPUT = 2


def train(settings: Source | None = None, /, *, progress: bool = True, **overrides: object) -> Run:
    """Train on this machine until a stop condition of the settings; returns the run.

    All processes of the run are programs of their own: nothing is forked, no ``if __name__ == "__main__"`` is needed, and the call may come
    from any thread. An interruption (Ctrl-C, a notebook's stop button) ends the run in order, with a checkpoint and a report; a second one
    kills it.

    Args:
        settings: a run file, the name of a shipped experiment (``"catch"``), several of these, a mapping of settings, or a `RunSettings`.
            None, with ``resume=True`` and ``run_dir``: the run's own.
        progress: print what ``herd train`` prints.
        overrides: settings by section, ``learner={"batch_size": 64}, seed=3``, or by dotted key, ``**{"learner.batch_size": 64}``. They
            override files and the environment (``HERD_...``).

    Raises:
        SettingsError: settings that cannot be used.
        RunError: the run failed; the line is the one that ``herd train`` prints, and the logs are in the run directory.

    """
    resolved = resolve_settings(settings, overrides)
    fresh = not resolved.resume
    try:
        resolved = claim_run_directory(resolved)
    except RunDirectoryError as error:
        raise RunError(str(error)) from error
    code, said = _run(resolved, progress=progress)
    if code == _EXIT_BAD_INPUT:
        if fresh:
            with suppress(OSError):  # it holds something after all
                resolved.directory.rmdir()
        raise SettingsError(_reason(said))
    if code:
        raise RunError(f"{resolved.directory}: {_reason(said)}")
    if progress and said:
        print(said, end="", file=sys.stderr)
    return Run(resolved.directory)


def resolve_settings(settings: Source | None, overrides: Mapping[str, object]) -> RunSettings:
    """Return the settings that ``train`` is asked for.

    Raises:
        SettingsError: they cannot be used, or there are none.

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
    """Return the exit code of the run, and what it said to stderr."""
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
    """Wait for its end, passing on its lines: under a notebook this process's stdout is no file that another could write to."""
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
    """The line that says why, without the name of the command."""
    lines = [line for line in said.splitlines() if line.startswith("herd: ")] or said.splitlines() or ["herd train failed"]
    return lines[-1].removeprefix("herd: ")
