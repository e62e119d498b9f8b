"""What the learner leaves in the run directory besides checkpoints. A disk that fails costs a file, never the run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from herd.service.files import append_line, replace_file
from herd.telemetry.logs import warn_limited
from herd_learner.lineage import LINEAGE_FILE, keep_lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.tracking.trackers import Trackers

METRICS = "metrics.jsonl"
REPORT = "report.json"


class RunFiles:
    """Every failure is counted, and told once a minute; the next write is tried as if there had been none."""

    def __init__(self, run_dir: Path, on_failure: Callable[[str], None], trackers: Trackers | None = None) -> None:
        """``on_failure`` gets the name of each file that could not be written; ``trackers`` get every point as well."""
        self._run_dir = run_dir
        self._on_failure = on_failure
        self._trackers = trackers

    def close(self) -> None:
        """Let viewers finish what they have been given, for some seconds at most; may be called again."""
        if self._trackers is not None:
            self._trackers.close()

    def add_point(self, point: Mapping[str, Any]) -> None:
        """Append a point of the learning curve. One that cannot be written is lost: the next says as much of the run."""
        if self._trackers is not None:
            self._trackers.add(point)
        try:
            append_line(self._run_dir / METRICS, json.dumps(point))
        except OSError as error:
            self.failed(METRICS, error)

    def write_report(self, report: Mapping[str, Any]) -> bool:
        """Replace the report; False if it could not be written."""
        try:
            replace_file(self._run_dir / REPORT, json.dumps(report, indent=2) + "\n")
        except OSError as error:
            self.failed(REPORT, error)
            return False
        return True

    def keep_lineage(self, lineage: int) -> None:
        """Put on disk what could not be when the lineage was opened."""
        try:
            keep_lineage(self._run_dir, lineage)
        except OSError as error:
            self.failed(LINEAGE_FILE, error)

    def failed(self, file: str, error: OSError) -> None:
        """``file`` could not be written."""
        self._on_failure(file)
        warn_limited(f"write {file}", "cannot write a file of the run", file=str(self._run_dir / file), reason=error.strerror or str(error))
