"""The evaluator's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.telemetry import metrics
from herd.telemetry import training as names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.telemetry import Telemetry
    from herd.transport import Client


class Meters:
    """Counts over the life of the process, and results of the newest evaluation of each agent."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._episodes = telemetry.counter(names.EVALUATOR_EPISODES)
        self._known: tuple[str, int] = ("", 0)
        self._evaluations = telemetry.counter(names.EVALUATOR_EVALUATIONS)
        self._failures = telemetry.counter(names.EVALUATOR_FILE_FAILURES)

    def watch_bytes(self, sockets: Sequence[Client]) -> None:
        """Export the traffic for weights."""
        self._telemetry.read(metrics.BYTES_IN, lambda: float(sum(one.bytes_in for one in sockets)), stream="weights")
        self._telemetry.read(metrics.BYTES_OUT, lambda: float(sum(one.bytes_out for one in sockets)), stream="weights")

    def playing(self, label: str, finished: int, wanted: int) -> None:  # noqa: ARG002  the signature of a progress callback
        """Record that ``finished`` games of the group ``label`` have ended."""
        before = self._known[1] if self._known[0] == label and self._known[1] < finished else 0
        self._known = (label, finished)
        self._episodes.inc(finished - before)

    def evaluated(self, agent: int, updates: int, scores: Mapping[str, float], aggregates: Mapping[str, float]) -> None:
        """Record the evaluation of a version. ``aggregates`` are those of `herd.components.suites.scores`."""
        self._evaluations.inc()
        label = str(agent)
        self._telemetry.gauge(names.EVALUATOR_UPDATES, agent=label).set(updates)
        for task, score in scores.items():
            self._telemetry.gauge(names.EVALUATOR_SCORE, agent=label, task=task).set(score)
        for statistic, value in aggregates.items():
            self._telemetry.gauge(names.EVALUATOR_AGGREGATE, agent=label, statistic=statistic).set(value)

    def file_failed(self) -> None:
        """Count a point that could not be written."""
        self._failures.inc()
