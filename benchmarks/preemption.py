"""What a preemption costs: sends SIGTERM to one process of each kind of a real run, as a spot node does, and replaces it.

``python -m benchmarks.preemption breakout --output DIR`` starts the processes of ``herd train`` in the new folder DIR without its
supervisor, each on its own as in pods, and prints a table. Words after the options are passed to ``herd train``.

All times are counted from the signal, and exclude what a cluster adds: a node, an image, a volume. The pause is the longest time without a
trained frame. A frame is lost if an actor has reported it and no update uses it. In addition, a preempted actor loses what it has not sent:
at most one message.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from herd.cli.train import read_settings
from herd.launch.child import Child
from herd.launch.plan import ChildPlan, Start, placed_here, plan_children
from herd.launch.readings import metrics_url, work_done
from herd.launch.run_directory import claim_run_directory, hold_run_directory
from herd.protocols.unrolls.metrics import DROP_REASONS, FRAMES_DROPPED
from herd.service.host import describe_hardware
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total
from herd.telemetry.training import LEARNER_ENV_FRAMES

LEARNER = "learner-0"
POLL_SECONDS = 0.05
"""Accuracy of the times, besides the duration of a scrape."""
LIMIT_SECONDS = 300.0
"""Longest wait for anything."""


COLUMNS = ("process", "ends after, s", "writes", "replacement works after, s", "training pauses for, s", "frames lost, by reason")


class Pods:
    """The processes of a run, each started again when it ends. Use as a context manager, which ends them."""

    def __init__(self, plans: tuple[ChildPlan, ...], run_dir: Path) -> None:
        self.plans = {plan.name: plan for plan in plans}
        self.run_dir = run_dir
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Pods:
        (self.run_dir / "logs").mkdir(exist_ok=True)
        for name in self.plans:
            self._start(name, restarts=0)
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children.values()):
            child.end(LIMIT_SECONDS)

    def _start(self, name: str, *, restarts: int) -> None:
        plan = self.plans[name]
        log = self.run_dir / "logs" / f"{name}.log"
        self._children[name] = Child(plan.command(Start(restarts, 0.0)), plan.environment, log, niceness=plan.niceness)

    def samples(self, name: str) -> tuple[int, Samples]:
        """Replace what has ended; return the id of a process and its metrics, which are empty while it starts."""
        for each, child in list(self._children.items()):
            if child.exit_code() is not None:
                self._start(each, restarts=1)
        pid = self._children[name].pid
        url = metrics_url(self.run_dir, name, pid)
        try:
            return pid, {} if url is None else scrape(url)
        except ScrapeError:
            return pid, {}

    def preempt(self, name: str) -> tuple[str, ...]:
        """Send SIGTERM, wait until frames flow through the replacement, and return a row of the table."""
        learner, before = self.samples(LEARNER)
        own = self.run_dir if name.startswith("learner") else self.run_dir / self.plans[name].service
        files = _stamps(own)
        child = self._children[name]
        started = seen = time.monotonic()
        child.send(signal.SIGTERM)
        while child.exit_code() is None:
            _pause(started)
        exited = time.monotonic()
        changed = {path.relative_to(own).parts[0] for path, stamp in _stamps(own).items() if files.get(path) != stamp}
        written = sorted(changed - {plan.service for plan in self.plans.values()})  # the others' folders are in the learner's
        progress, pause, replaced = (learner, total(before, LEARNER_ENV_FRAMES.name)), 0.0, 0.0
        while True:
            pid, now = self.samples(LEARNER)
            frames = total(now, LEARNER_ENV_FRAMES.name)
            if frames and (pid, frames) != progress:
                pause, seen, progress = max(pause, time.monotonic() - seen), time.monotonic(), (pid, frames)
                if replaced:
                    break
            if not replaced and work_done(name, self.samples(name)[1]):
                replaced = time.monotonic()
            _pause(started)
        time.sleep(5.0)  # actors report what was lost when they reconnect
        pid, now = self.samples(LEARNER)
        lost = {reason: total(now, FRAMES_DROPPED.name, reason=reason) for reason in DROP_REASONS}
        if pid == learner:
            lost = {reason: count - total(before, FRAMES_DROPPED.name, reason=reason) for reason, count in lost.items()}
        said = ", ".join(f"{count:,.0f} ({reason})" for reason, count in lost.items() if count)
        times = [f"{seconds:.1f}" for seconds in (exited - started, replaced - started, pause)]
        return name, times[0], ", ".join(written) or "nothing", *times[1:], said or "0"


def _stamps(folder: Path) -> dict[Path, int]:
    files = (path for path in folder.rglob("*") if path.parent.name not in {"logs", "processes"})
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


def _pause(started: float) -> None:
    if time.monotonic() - started > LIMIT_SECONDS:
        raise SystemExit(f"not within {LIMIT_SECONDS:g} s; see the logs of the run")
    time.sleep(POLL_SECONDS)


def main() -> None:
    """Preempt one process of each kind, after ``--settle`` seconds of training."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preemption", description=__doc__, allow_abbrev=False)
    parser.add_argument("experiment")
    parser.add_argument("--output", type=Path, required=True, help="of the run")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds of training before each signal")
    parser.add_argument("--repeat", type=int, default=3, help="signals for each kind")
    options, words = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes are ended too
    fixed = ("--run_dir", str(options.output / "run"), "--stop.env_frames", "null", "--stop.wall_seconds", "null")
    settings = read_settings([options.experiment, *fixed, *words], os.environ)
    with ExitStack() as stack:
        placed = stack.enter_context(placed_here(settings))
        held = stack.enter_context(hold_run_directory(settings := claim_run_directory(settings)))
        pods = stack.enter_context(Pods(plan_children(settings, held.path, placed, os.environ), held.path))
        started = time.monotonic()
        while not total(pods.samples(LEARNER)[1], LEARNER_ENV_FRAMES.name):
            _pause(started)
        print(f"{describe_hardware()}\n| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
        for name in [name for name in pods.plans if name.endswith("-0")] * options.repeat:
            time.sleep(options.settle)
            print(f"| {' | '.join(pods.preempt(name))} |", flush=True)


if __name__ == "__main__":
    main()
