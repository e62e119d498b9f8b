"""``herd train`` as a process of its own, whose directory is whole or not there. Several at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, NamedTuple

from herd.supervisor.child import before_exec
from herd.supervisor.program import stop_training

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_TICK_SECONDS = 0.1


class Trial(NamedTuple):
    """One run to train."""

    directory: Path
    """Where it is, once it is whole."""
    words: tuple[str, ...]
    """Of ``herd train``: run files and settings."""


class WholeRun:
    """Trains under another name, ``<directory>.partial``; what it says is in ``<directory>.out``."""

    def __init__(self, trial: Trial) -> None:
        """Start it; what an interrupted one left is removed.

        Raises:
            OSError: no directory or process can be made.

        """
        self.trial = trial
        self.started = time.monotonic()
        directory = trial.directory
        self._partial = directory.with_name(directory.name + ".partial")
        self.said = directory.with_name(directory.name + ".out")
        """What it said."""
        if self._partial.is_dir():
            shutil.rmtree(self._partial)
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "herd.cli.main", "train", "--run_dir", str(self._partial), *trial.words]
        with self.said.open("w", encoding="utf-8") as output:
            self._process = _started(command, output)

    def exit_code(self) -> int | None:
        """None while it runs. With 0 its directory is there."""
        code = self._process.poll()
        if code == 0 and self._partial.is_dir():
            self._partial.rename(self.trial.directory)
        return code

    def wait(self, limit_seconds: float) -> int:
        """Return the exit code; subprocess.TimeoutExpired where it takes longer."""
        self._process.wait(limit_seconds)
        code = self.exit_code()
        assert code is not None
        return code

    def stop(self) -> None:
        """Take it down, in order first; nothing to do where it has ended."""
        stop_training(self._process)


def train_all(
    trials: Sequence[Trial], *, parallel: int, on_start: Callable[[Trial], None], on_end: Callable[[WholeRun, int], None]
) -> list[WholeRun]:
    """Train all, ``parallel`` at a time, in their order; one that fails does not keep the others. Returns those that failed.

    ``on_end`` is told the exit code. Whatever ends this call takes the runs under way down.
    """
    waiting, running, failed = list(reversed(trials)), list[WholeRun](), list[WholeRun]()
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                trial = waiting.pop()
                on_start(trial)
                running.append(WholeRun(trial))
            for run in list(running):
                if (code := run.exit_code()) is not None:
                    running.remove(run)
                    failed += [run] if code else []
                    on_end(run, code)
            time.sleep(_TICK_SECONDS)
    finally:
        for run in running:
            run.stop()
    return failed


def _started(command: Sequence[str], output: IO[str]) -> subprocess.Popen[str]:
    # In a group of its own: Ctrl-C reaches this process alone, which takes the run down in order.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
        preexec_fn=before_exec(os.getpid()),  # noqa: PLW1509  system calls only, which take no lock
    )
