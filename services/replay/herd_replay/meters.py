"""The replay service's metrics. Instruments are looked up once; stored amounts are read at each scrape."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from herd.protocols.replay import metrics as names
from herd.service.inbox import ServerMeters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from herd.telemetry import Telemetry
    from herd.telemetry.metrics import CounterMetric
    from herd_replay.assembly import Assembler
    from herd_replay.exchange import Answer
    from herd_replay.store import EpisodeStore


class Meters(ServerMeters):
    """The metrics of the replay service."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._requests = {outcome: telemetry.counter(names.REPLAY_REQUESTS, outcome=outcome) for outcome in names.REPLAY_OUTCOMES}
        self._sampled_steps = telemetry.counter(names.REPLAY_SAMPLED_STEPS)
        self._age = telemetry.histogram(names.REPLAY_SAMPLE_AGE)
        self._snapshots = telemetry.counter(names.REPLAY_SNAPSHOTS)
        self._file_failures = telemetry.counter(names.REPLAY_FILE_FAILURES)

    def watch_episodes(self, store: EpisodeStore, assembler: Assembler, snapshot_age_seconds: Callable[[], float]) -> None:
        """Export stored, inserted and removed amounts, and the age of the snapshot."""
        read = self._telemetry.read
        read(names.REPLAY_STEPS, lambda: float(store.num_steps))
        read(names.REPLAY_EPISODES, lambda: float(store.num_episodes))
        restored_steps, restored_episodes = store.inserted_steps, store.inserted_episodes
        read(names.REPLAY_INSERTED_STEPS, lambda: float(store.inserted_steps - restored_steps))
        read(names.REPLAY_INSERTED_EPISODES, lambda: float(store.inserted_episodes - restored_episodes))
        read(names.REPLAY_OPEN_STEPS, lambda: float(assembler.num_steps))
        read(names.REPLAY_BYTES, lambda: float(store.num_bytes + assembler.total_bytes))
        read(names.REPLAY_SNAPSHOT_AGE, snapshot_age_seconds)
        counted: tuple[tuple[CounterMetric, Mapping[Any, int]], ...] = (
            (names.REPLAY_DISCARDED, assembler.num_discarded),
            (names.REPLAY_EVICTED, store.num_evicted),
        )
        for metric, counts in counted:
            for reason in metric.values:
                read(metric, partial(_count, counts, reason), reason=reason)

    def bounded(self, *, capacity_steps: int, max_bytes: int) -> None:
        """Set the limits of complete episodes."""
        self._telemetry.gauge(names.REPLAY_CAPACITY).set(capacity_steps)
        self._telemetry.gauge(names.REPLAY_MAX_BYTES).set(max_bytes)

    def restored(self, num_steps: int) -> None:
        """Set the number of restored agent steps."""
        self._telemetry.gauge(names.REPLAY_RESTORED).set(num_steps)

    def answered(self, answer: Answer) -> None:
        """Count a request and its result."""
        self._requests[answer.outcome].inc()
        self._sampled_steps.inc(answer.sampled_steps)
        for age in answer.ages:
            self._age.observe(age)

    def snapshot_written(self) -> None:
        """Count a snapshot that was written."""
        self._snapshots.inc()

    def file_failed(self) -> None:
        """Count a snapshot that could not be written."""
        self._file_failures.inc()


def _count(counts: Mapping[str, int], reason: str) -> float:
    return float(counts.get(reason, 0))
