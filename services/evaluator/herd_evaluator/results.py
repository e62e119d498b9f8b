"""Where the results of evaluations go: the evaluator's metrics, and RUN/evaluation.jsonl."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from herd.files import FileError, append_line
from herd.run.journals import EVALUATIONS, frames_at, read_evaluations
from herd.telemetry import metrics
from herd.telemetry import training as names
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from herd.protocols.weights.client import Version
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


class PointsFile:
    """The file of one agent: one evaluated version per line, next to the learner's metrics.jsonl. A failing disk costs only points."""

    def __init__(self, directory: Path, on_failure: Callable[[], None]) -> None:
        self._path = directory / EVALUATIONS
        self._on_failure = on_failure

    @property
    def newest_version(self) -> Version | None:
        """Return the newest evaluated version; None before the first, or if the file cannot be read, which the log tells."""
        try:
            points = read_evaluations(self._path.parent)
        except FileError as error:
            warn_limited("read evaluations", "cannot tell which version was evaluated last", reason=str(error))
            return None
        return None if not points else (points[-1].lineage, points[-1].learner_updates)

    def add(self, point: Mapping[str, Any]) -> None:
        """Append a point, with its place on the learning curve if it is known. A point that cannot be written is lost."""
        point = {**point, "env_frames": frames_at(self._path.parent, point["learner_updates"])}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            append_line(self._path, json.dumps(point, allow_nan=False))
        except OSError as error:
            self._on_failure()
            warn_limited("write evaluation", "cannot write a file of the run", file=str(self._path), reason=error.strerror or str(error))
