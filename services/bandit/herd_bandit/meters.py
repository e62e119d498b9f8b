"""The bandit's metrics. Instruments are looked up once; values of ensembles are read at each scrape."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from herd.protocols.bandit import metrics as names
from herd.service.inbox import ServerMeters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from herd.telemetry import Telemetry
    from herd_bandit.exchange import Answer
    from herd_bandit.task_bandit import TaskBandit


class Meters(ServerMeters):
    """The metrics of the bandit."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._requests = {outcome: telemetry.counter(names.BANDIT_REQUESTS, outcome=outcome) for outcome in names.REQUEST_OUTCOMES}
        self._reports = {outcome: telemetry.counter(names.BANDIT_REPORTS, outcome=outcome) for outcome in names.REPORT_OUTCOMES}
        self._reused = telemetry.counter(names.BANDIT_REUSED)
        self._snapshots = telemetry.counter(names.BANDIT_SNAPSHOTS)
        self._file_failures = {file: telemetry.counter(names.BANDIT_FILE_FAILURES, file=file) for file in ("state.json", "history.jsonl")}

    def watch_state(self, bandits: Iterable[TaskBandit], snapshot_age_seconds: Callable[[], float]) -> None:
        """Export the value of every tile, and how old the state on disk is."""
        self._telemetry.read(names.BANDIT_SNAPSHOT_AGE, snapshot_age_seconds)
        for bandit in bandits:
            self._telemetry.histogram(names.BANDIT_TEMPERATURE, agent=str(bandit.agent), task=bandit.task)
            for tile in range(bandit.ensemble.tiling.num_tiles):
                labels = {"agent": str(bandit.agent), "task": bandit.task, "tile": str(tile)}
                self._telemetry.read(names.BANDIT_TILE_VALUE, partial(_value, bandit, tile), **labels)

    def restored(self, episodes: int) -> None:
        """Set the number of games in the restored state."""
        self._telemetry.gauge(names.BANDIT_RESTORED).set(episodes)

    def answered(self, answer: Answer) -> None:
        """Count a valid request and its contents."""
        self._requests[answer.outcome].inc()
        for outcome, number in answer.reports.items():
            self._reports[outcome].inc(number)
        self._reused.inc(answer.num_reused)
        for bandit, inverse_temperature in answer.handed_out:
            labels = {"agent": str(bandit.agent), "task": bandit.task}
            self._telemetry.histogram(names.BANDIT_TEMPERATURE, **labels).observe(inverse_temperature)

    def snapshot_written(self) -> None:
        """Count a state that was written."""
        self._snapshots.inc()

    def file_failed(self, file: str) -> None:
        """Count a state or a record that could not be written."""
        self._file_failures[file].inc()


def _value(bandit: TaskBandit, tile: int) -> float:
    return float(bandit.evaluation[tile])
