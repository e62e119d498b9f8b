"""Waits for progress of several agents, read from the metrics of each agent's learner shards."""

from __future__ import annotations

from functools import partial

from herd.telemetry.scrape import total
from tests.cluster.cluster_settings import AGENTS
from tests.cluster.conftest import Installed


def of_agents(installed: Installed, metric: str) -> list[float]:
    """Sum of a metric over the shards of each agent; -1 for an agent with a shard that does not answer. Never NaN."""
    sums = [0.0] * AGENTS
    for pod in installed.live.lasting("learner"):
        samples = installed.live.samples(pod)
        sums[pod.agent] = -1.0 if samples is None or sums[pod.agent] < 0 else sums[pod.agent] + total(samples, metric)
    return sums


def all_grew(before: list[float], now: list[float]) -> bool:
    return all(new > old for new, old in zip(now, before, strict=True))


def until_grown(installed: Installed, metric: str) -> None:
    """Wait until the metric of every agent has grown."""
    before = installed.live.until(f"{metric} of all shards", partial(of_agents, installed, metric), lambda found: min(found) >= 0)
    installed.live.until(f"more {metric} than {before}", partial(of_agents, installed, metric), partial(all_grew, before))
