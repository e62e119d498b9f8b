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

import numpy as np
import psutil

from benchmarks.peers.programs import CHECKOUT, command_of, surroundings
from benchmarks.peers.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.tasks import Task

GAMES = 50
"""A point of a curve is the mean return of this many games; there is none before."""
_POINTS = 200
_CHECKS = 5
"""Seconds between two looks at whether a game of Atari has its score."""


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

    def frames_per_second(self) -> float | None:
        """Return the speed between the first and the last point, thus without the start of the processes; None: there is one point."""
        seconds = self.seconds[-1] - self.seconds[0]
        return (self.frames[-1] - self.frames[0]) / seconds if seconds > 0 else None


def train(program: str, python: Path, task: str, seed: int, *, alone: bool, hardware: dict[str, object], minutes: float = 60.0) -> Run:
    """Train and return the run. A run of Atari ends as soon as it has the score or its frames, or after ``minutes``.

    Raises:
        SystemExit: the program failed, finished too few games, or took longer than ``minutes`` on another task. The line names the file
            with its output.
    """
    goal = TASKS[task]
    score = goal.score if goal.game else None
    folder = Path(tempfile.mkdtemp(prefix=f"{task}-{program}-{seed}-"))
    episodes, output = folder / "episodes", folder / "output.txt"
    episodes.mkdir()
    words = command_of(program, python, task=task, seed=seed, frames=goal.frames, run=folder / "run")
    began = time.time()
    with output.open("wb") as file:
        child = subprocess.Popen(
            words, cwd=CHECKOUT, env=surroundings(episodes), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        peak, ended, enough, checks = 0, False, False, 0
        try:
            while not (ended or enough):
                late = time.time() - began > 60.0 * minutes
                if late and score is None:
                    raise SystemExit(f"{program} did not end {task} within {minutes:g} minutes: see {output}")
                held, core_seconds = _used(child.pid)
                peak, checks = max(peak, held), checks + 1
                enough = late or (score is not None and checks % _CHECKS == 0 and _over(goal, curve(episodes, began, score)))
                time.sleep(1.0)
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                ended = pid != 0
        finally:
            if not ended:  # enough, too late, or this command is interrupted: leave none of its processes behind
                process = psutil.Process(child.pid)
                own = [process, *process.children(recursive=True)]  # the first would restart the others
                for each in own:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
                psutil.wait_procs(own[1:], timeout=10.0)  # until they no longer write into the folder
    seconds = round(time.time() - began, 1)
    if ended:
        child.returncode, core_seconds = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    else:
        child.wait()
    points = curve(episodes, began, score)
    if (ended and child.returncode) or not points:
        raise SystemExit(f"{program} ended {task} with exit code {child.returncode} after {len(points)} points: see {output}")
    shutil.rmtree(folder)
    date = time.strftime("%Y-%m-%d", time.gmtime(began))
    return Run(task, program, seed, alone, seconds, round(core_seconds, 1), peak, hardware, date, *map(list, zip(*points, strict=True)))


def _over(goal: Task, points: Sequence[tuple[int, float, float]]) -> bool:
    """Return whether a run has the score or all its frames; some programs have published schedules that are longer."""
    return bool(points) and (points[-1][2] >= goal.score or points[-1][0] >= goal.frames)


def curve(episodes: Path, began: float, score: float | None = None) -> list[tuple[int, float, float]]:
    """Return at most 200 points (frames, seconds since ``began``, mean return) of what the environments wrote.

    With ``score``, the last point is the first game at which the mean has it.
    """
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
    if score is not None and len(games) >= GAMES:
        solved = np.flatnonzero(np.convolve(returns, np.ones(GAMES), "valid") >= score * GAMES)
        games = games[: solved[0] + GAMES] if len(solved) else games
    chosen = {len(games) - 1 - index * max(1, len(games) // _POINTS) for index in range(_POINTS)}
    for index, (when, length, _) in enumerate(games):
        frames += length
        if index in chosen and index + 1 >= GAMES:
            last = returns[index + 1 - GAMES : index + 1]
            points.append((frames, round(when - began, 1), round(sum(last) / GAMES, 4)))
    return points


def _used(pid: int) -> tuple[int, float]:
    """Return the bytes that a process and its descendants hold, and the core-seconds that they and those before them have taken."""
    held, core_seconds = 0, 0.0
    with contextlib.suppress(psutil.Error):
        for each in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                held += each.memory_full_info().pss
                times = each.cpu_times()
                core_seconds += times.user + times.system + times.children_user + times.children_system
    return held, core_seconds
