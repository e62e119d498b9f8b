"""RUN/evaluation.jsonl: one evaluated version per line, next to the learner's metrics.jsonl. A failing disk costs only points."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from herd.files import JournalError, append_line
from herd.run.journals import EVALUATIONS, frames_at, read_evaluations
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.protocols.weights.client import Version


class PointsFile:
    """The file of one agent."""

    def __init__(self, directory: Path, on_failure: Callable[[], None]) -> None:
        self._path = directory / EVALUATIONS
        self._on_failure = on_failure

    @property
    def newest_version(self) -> Version | None:
        """Return the newest evaluated version; None before the first, or if the file cannot be read."""
        try:
            points = read_evaluations(self._path.parent)
        except JournalError:
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
