"""Measures the whole system, as a user starts it, from outside: ``herd train`` after a warm-up."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from benchmarks.machine.measurement import Measurement
from benchmarks.machine.stages import StageError, stage_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAIN = (sys.executable, "-m", "herd.cli.main", "train")
# Time for imports of torch in every process, the environments' first reset, and a first update.
START_SECONDS = 120.0
STOP_SECONDS = 60.0
# The start and the end of the window are read at most this late: 0.4 % of 10 s.
POLL_SECONDS = 0.02


class _Sample(NamedTuple):
    agent_steps: int
    wall_seconds: float
    cpu_seconds: float


def measure_system(config: Path, run_dir: Path, *, seconds: float, warmup_seconds: float) -> Measurement:
    """Train for the warm-up, and then measure for ``seconds``.

    Agent steps are those that the learner trained on. Processor time is that of all processes of the run, including the supervisor.

    Raises:
        StageError: the run did not start, or ended early.

    """
    log_file = run_dir.with_suffix(".log")  # next to it, because the run creates the directory
    command = [*TRAIN, str(config), "--run_dir", str(run_dir), "--resume", "false", "--learner.log_interval_seconds", "1"]
    command += ["--stop.env_frames", "null", "--stop.wall_seconds", "null"]
    with log_file.open("wb") as log, _started(command, log.fileno()) as process:
        points = _points(process, run_dir / "metrics.jsonl", log_file)
        first = next(points)
        start = first
        while start.wall_seconds < first.wall_seconds + warmup_seconds:
            start = next(points)
        end = start
        while end.wall_seconds < start.wall_seconds + seconds:
            end = next(points)
    steps = end.agent_steps - start.agent_steps
    if steps <= 0:
        raise StageError(f"system: the learner consumed no frames in {seconds:g} s")
    return Measurement(steps, end.wall_seconds - start.wall_seconds, end.cpu_seconds - start.cpu_seconds)


@contextlib.contextmanager
def _started(command: list[str], output: int) -> Iterator[subprocess.Popen[bytes]]:
    # In a new session, so that Ctrl-C reaches only this process, which then ends the run cleanly.
    process = subprocess.Popen(
        command, env=stage_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for descendant in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    descendant.kill()
            process.kill()
            process.wait()


def _points(process: subprocess.Popen[bytes], metrics: Path, log_file: Path) -> Iterator[_Sample]:
    """Yield a sample at every new point of the learning curve, beginning with the first that has agent steps."""
    deadline = time.monotonic() + START_SECONDS
    lines_read = 0
    while time.monotonic() < deadline:
        lines = metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []  # the last line may be incomplete
        if len(lines) > lines_read:
            lines_read = len(lines)
            point: dict[str, Any] = json.loads(lines[-1])
            if point["agent_steps"] > 0:
                deadline = time.monotonic() + START_SECONDS
                yield _Sample(int(point["agent_steps"]), float(point["wall_seconds"]), _tree_cpu_seconds(process.pid))
        elif process.poll() is not None:
            raise StageError(f"system: herd train ended with exit code {process.returncode}: {_last_line(log_file)}")
        time.sleep(POLL_SECONDS)
    raise StageError(f"system: no new point of the learning curve for {START_SECONDS:g} s: {_last_line(log_file)}")


def _tree_cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its living descendants."""
    total = 0.0
    # A process may end between being listed and being read.
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
    return total


def _last_line(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "(no output)"
