"""One run of one program: its time, its processors' time, its memory, and the curve that its environments wrote down."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.peers.programs import CHECKOUT, command_of, surroundings
from benchmarks.peers.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Sequence

GAMES = 50
"""A point of a curve is the mean return of this many games; there is none before."""
_POINTS = 200
_LIMIT_SECONDS = 3_600.0


@dataclass(frozen=True)
class Run:
    """A finished run. ``frames``, ``seconds`` since the command began and ``returns`` are the points of its curve."""

    task: str
    program: str
    seed: int
    alone: bool
    """Whether nothing else ran, so that its seconds can be compared."""
    wall_seconds: float
    core_seconds: float
    peak_bytes: int
    """Most memory of all its processes together, a shared page counted once (PSS), looked at every second."""
    hardware: dict[str, object]
    date: str
    frames: Sequence[int]
    seconds: Sequence[float]
    returns: Sequence[float]

    def reached(self, score: float) -> int | None:
        """Return the index of the first point that is at ``score`` or above; None: there is none."""
        return next((index for index, value in enumerate(self.returns) if value >= score), None)


def train(program: str, python: Path, task: str, seed: int, *, alone: bool, hardware: dict[str, object]) -> Run:
    """Train and return the run.

    Raises:
        SystemExit: the program failed, took an hour, or finished too few games; the line names the file with its output.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{task}-{program}-{seed}-"))
    episodes, output = folder / "episodes", folder / "output.txt"
    episodes.mkdir()
    words = command_of(program, python, task=task, seed=seed, frames=TASKS[task].frames, run=folder / "run")
    began = time.time()
    with output.open("wb") as file:
        child = subprocess.Popen(
            words, cwd=CHECKOUT, env=surroundings(episodes), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        peak, ended = 0, False
        try:
            while not ended:
                if time.time() - began > _LIMIT_SECONDS:
                    raise SystemExit(f"{program} did not end {task} within an hour: see {output}")
                peak = max(peak, _held(child.pid))
                time.sleep(1.0)
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                ended = pid != 0
        finally:
            if not ended:  # too late, or this command is interrupted: leave none of its processes behind
                process = psutil.Process(child.pid)
                for each in [*process.children(recursive=True), process]:
                    each.kill()
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = round(time.time() - began, 1)
    points = curve(episodes, began)
    if child.returncode or not points:
        raise SystemExit(f"{program} ended {task} with exit code {child.returncode} after {len(points)} points: see {output}")
    shutil.rmtree(folder)
    date = time.strftime("%Y-%m-%d", time.gmtime(began))
    core_seconds = round(usage.ru_utime + usage.ru_stime, 1)
    return Run(task, program, seed, alone, seconds, core_seconds, peak, hardware, date, *map(list, zip(*points, strict=True)))


def curve(episodes: Path, began: float) -> list[tuple[int, float, float]]:
    """Return at most 200 points (frames, seconds since ``began``, mean return) of what the environments wrote."""
    games: list[tuple[float, int, float]] = []  # when a game ended, its frames and its return
    for path in episodes.iterdir():
        before = 0
        for line in path.read_text().splitlines():
            when, steps, value = (float(number) for number in line.split(","))
            games.append((when, int(steps) - before, value))
            before = int(steps)
    games.sort()
    points, frames = [], 0
    returns = [value for _, _, value in games]
    chosen = {len(games) - 1 - index * max(1, len(games) // _POINTS) for index in range(_POINTS)}
    for index, (when, length, _) in enumerate(games):
        frames += length
        if index in chosen and index + 1 >= GAMES:
            last = returns[index + 1 - GAMES : index + 1]
            points.append((frames, round(when - began, 1), round(sum(last) / GAMES, 4)))
    return points


def _held(pid: int) -> int:
    """Return the bytes that a process and its descendants hold."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for each in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += each.memory_full_info().pss
    return total
