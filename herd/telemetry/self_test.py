"""``python -m herd.telemetry.self_test``: checks from outside whether a run works. ``helm test`` runs it in the cluster.

Every service must be ready, and every learner must train on frames or have reached the end of its run: in a population, one member without
actors would otherwise hide behind the others. The exit code is 0 if this is the
case within the time limit, otherwise 1. Each line reports the present state.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from herd.telemetry.scrape import ScrapeError, page, scrape, total
from herd.telemetry.telemetry import RUN_IS_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAUSE_SECONDS = 2.0
"""Seconds between two readings, longer than an update, so that progress is visible."""


class Reading(NamedTuple):
    """The run at one moment."""

    missing: tuple[str, ...]
    """Addresses of services that are not ready."""
    env_frames: Mapping[str, float]
    """Env frames that each learner has trained on since it started, by its address."""
    actors: float
    """Number of actors connected to shards; an actor may be counted by several shards."""
    over: frozenset[str]
    """Learners that report that their run is over."""


class Verdict(NamedTuple):
    """The result of comparing two readings."""

    works: bool
    line: str


def read(learners: Sequence[str], others: Sequence[str]) -> Reading:
    """Read every service; ``learners`` and ``others`` are addresses such as ``http://herd-paramserver:9400``."""
    readiness = {url: page(f"{url}/readyz") for url in (*learners, *others)}
    env_frames, actors = {}, 0.0
    for url in learners:
        try:
            samples = scrape(f"{url}/metrics")
        except ScrapeError:
            continue  # it is among the missing ones, or will be at the next reading
        env_frames[url] = total(samples, "herd_learner_env_frames_total")
        actors += total(samples, "herd_learner_connected_actors")
    missing = tuple(url for url, answer in readiness.items() if answer is None)
    return Reading(missing, env_frames, actors, frozenset(url for url in learners if RUN_IS_OVER in (readiness[url] or "")))


def judge(before: Reading, now: Reading, seconds: float) -> Verdict:
    """Compare two readings, ``seconds`` apart."""
    if now.missing:
        return Verdict(works=False, line=f"not ready: {', '.join(now.missing)}")
    if now.over and now.over >= now.env_frames.keys():
        return Verdict(works=True, line=f"every service is ready, and {RUN_IS_OVER}")
    new = {url: frames - before.env_frames.get(url, 0.0) for url, frames in now.env_frames.items()}
    idle = sorted(url for url, frames in new.items() if frames <= 0 and url not in now.over)
    line = f"every service is ready; {now.actors:.0f} connections of actors, {sum(new.values()) / seconds:,.0f} frames per second"
    return Verdict(works=not idle, line=f"{line}: no frames at {', '.join(idle)}" if idle else line)


def watch(
    learners: Sequence[str],
    others: Sequence[str],
    timeout_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Check repeatedly until the run works; False when the time is over. Prints only changes."""
    deadline = clock() + timeout_seconds
    before, read_at, said = read(learners, others), clock(), ""
    while True:
        pause(PAUSE_SECONDS)
        now, at = read(learners, others), clock()
        verdict = judge(before, now, at - read_at)
        if verdict.line != said:
            print(verdict.line, flush=True)
        if verdict.works or at >= deadline:
            return verdict.works
        before, read_at, said = now, at, verdict.line


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and watch; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m herd.telemetry.self_test", description="Checks from outside whether a run works.")
    parser.add_argument("--learner", action="append", required=True, metavar="URL", help="metrics address of a learner's shard; repeat")
    parser.add_argument("--ready", action="append", default=[], metavar="URL", help="metrics address of any other service; repeat")
    parser.add_argument("--timeout-seconds", type=float, default=300.0, help="seconds after which the test fails")
    options = parser.parse_args(argv)
    return 0 if watch(options.learner, options.ready, options.timeout_seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
