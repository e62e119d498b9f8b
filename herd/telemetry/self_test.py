"""``python -m herd.telemetry.self_test``: whether a run works, asked from outside. ``helm test`` runs it in the cluster.

Every service must be ready, and the learner must train on frames, or have done so to the end of its run. Exit code 0 where that is
so before the time is over, else 1; each line says what was found.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from herd.telemetry.scrape import ScrapeError, page, scrape, total
from herd.telemetry.telemetry import RUN_IS_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAUSE_SECONDS = 2.0
"""Between looks: longer than an update takes, so that frames that flow are seen to."""


class Look(NamedTuple):
    """The run at one moment."""

    missing: tuple[str, ...]
    """Services that are not ready."""
    env_frames: float
    """Trained on, by all shards since they started."""
    actors: float
    """Connections of actors that shards have heard from: one actor may be counted by several."""
    is_over: bool
    """Every shard says that the run is."""


class Verdict(NamedTuple):
    """What two looks say."""

    works: bool
    line: str


def look(learners: Sequence[str], others: Sequence[str]) -> Look:
    """Ask every service; ``learners`` and ``others`` are addresses such as ``http://herd-paramserver:9400``."""
    readiness = {url: page(f"{url}/readyz") for url in (*learners, *others)}
    env_frames = actors = 0.0
    for url in learners:
        try:
            samples = scrape(f"{url}/metrics")
        except ScrapeError:
            continue  # it is among the missing ones, or will be at the next look
        env_frames += total(samples, "herd_learner_env_frames_total")
        actors += total(samples, "herd_learner_connected_actors")
    missing = tuple(url for url, answer in readiness.items() if answer is None)
    return Look(missing, env_frames, actors, all(RUN_IS_OVER in (readiness[url] or "") for url in learners))


def judge(before: Look, now: Look, seconds: float) -> Verdict:
    """Compare two looks, ``seconds`` apart."""
    if now.missing:
        return Verdict(works=False, line=f"not ready: {', '.join(now.missing)}")
    if now.is_over:
        return Verdict(works=True, line=f"every service is ready, and {RUN_IS_OVER}")
    rate = (now.env_frames - before.env_frames) / seconds
    line = f"every service is ready; {now.actors:.0f} connections of actors, {rate:,.0f} frames per second"
    return Verdict(works=rate > 0, line=line if rate > 0 else f"{line}: the learner trains on no frames")


def watch(
    learners: Sequence[str],
    others: Sequence[str],
    timeout_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Look until it works, and say so; False when the time is over. What has not changed is not said again."""
    deadline = clock() + timeout_seconds
    before, looked_at, said = look(learners, others), clock(), ""
    while True:
        pause(PAUSE_SECONDS)
        now, at = look(learners, others), clock()
        verdict = judge(before, now, at - looked_at)
        if verdict.line != said:
            print(verdict.line, flush=True)
        if verdict.works or at >= deadline:
            return verdict.works
        before, looked_at, said = now, at, verdict.line


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
