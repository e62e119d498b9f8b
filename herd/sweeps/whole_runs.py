"""Runs ``herd train`` as separate processes, several at a time. A run's directory appears only when the run is finished."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from typing import IO, TYPE_CHECKING, NamedTuple

from herd.components.user_code import PYTHON
from herd.launch.child import before_exec
from herd.launch.program import stop_training
from herd.run.paths import CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

TICK_SECONDS = 0.1


class Trial(NamedTuple):
    """One run to train."""

    directory: Path
    """Directory of the finished run."""
    words: tuple[str, ...]
    """Arguments of ``herd train``: run files and settings."""

    @property
    def output(self) -> Path:
        """File with what the run prints."""
        return self.directory.with_name(self.directory.name + ".out")


class ClaimedError(RuntimeError):
    """Another sweep trains this run; one line."""


class WholeRun:
    """Trains in ``<directory>.partial``, and renames it at the end.

    The output is in ``<directory>.out``. The run's process holds a lock on this file, so the claim ends with the run, even if the sweep is
    killed before.
    """

    def __init__(self, trial: Trial, *, resume: bool = False) -> None:
        """Start the run. With ``resume`` an interrupted one continues from its newest checkpoint; otherwise its files are removed first.

        Raises:
            ClaimedError: another sweep trains it.
            OSError: the directory or the process cannot be created.

        """
        self.trial = trial
        self.started = time.monotonic()
        directory = trial.directory
        self.partial = directory.with_name(directory.name + ".partial")
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._output = _claimed(trial.output, directory)
        self._output.truncate(0)
        print(f"herd sweep (process {os.getpid()})", file=self._output, flush=True)
        continues = resume and any(self.partial.glob(f"{CHECKPOINTS}/*"))
        if self.partial.is_dir() and not continues:
            shutil.rmtree(self.partial)
        resumes = ["--resume"] if continues else []
        command = [*PYTHON, "-m", "herd.cli.main", "train", "--run_dir", str(self.partial), *trial.words, *resumes]
        self._process = _started(command, self._output)

    def exit_code(self) -> int | None:
        """Return the exit code; None while the run is running. After 0 its directory exists."""
        code = self._process.poll()
        if code == 0 and self.partial.is_dir():
            self.partial.rename(self.trial.directory)
        if code is not None:
            self._output.close()
        return code

    def wait(self, limit_seconds: float) -> int:
        """Wait and return the exit code; subprocess.TimeoutExpired if it takes longer."""
        self._process.wait(limit_seconds)
        code = self.exit_code()
        assert code is not None
        return code

    def stop(self) -> None:
        """Stop the run cleanly, and kill it if necessary. Does nothing if it has ended."""
        stop_training(self._process)


def train_all(
    trials: Sequence[Trial], *, parallel: int, on_start: Callable[[Trial], None], on_end: Callable[[WholeRun, int], None]
) -> list[WholeRun]:
    """Train all runs in order, ``parallel`` at a time. A failed run does not stop the others. Returns the failed runs.

    ``on_end`` gets the exit code. If this call ends early for any reason, the runs under way are stopped.
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
            time.sleep(TICK_SECONDS)
    finally:
        for run in running:
            run.stop()
    return failed


def check_unclaimed(trial: Trial) -> None:
    """Raise ClaimedError if another sweep trains this run now."""
    if trial.output.exists():
        _claimed(trial.output, trial.directory).close()


def _claimed(output: Path, directory: Path) -> IO[str]:
    """Open the run's output and lock it; the lock belongs to the open file, which the run's process inherits."""
    file = output.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.readline(200).strip()
        file.close()
        raise ClaimedError(f"{directory} is being trained by another {holder or 'herd sweep'}") from None
    return file


def _started(command: Sequence[str], output: IO[str]) -> subprocess.Popen[str]:
    # In a separate process group, so that Ctrl-C reaches only this process, which stops the run cleanly.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
        preexec_fn=before_exec(os.getpid()),  # noqa: PLW1509  system calls only, which take no lock
    )
