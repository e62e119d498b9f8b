"""The learner's files in the run directory, except checkpoints. If a file cannot be written, the run continues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from herd.files import replace_file
from herd.run.journals import METRICS, add_point
from herd.run.paths import REPORT
from herd.telemetry.logs import warn_limited
from herd_learner.lineage import LINEAGE_FILE, keep_lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.components.trackers.publishing import Trackers


class RunFiles:
    """Failures are counted, and logged once a minute. Later writes are tried as usual."""

    def __init__(self, run_dir: Path, on_failure: Callable[[str], None], trackers: Trackers | None = None) -> None:
        """``on_failure`` gets the name of each file that could not be written; ``trackers`` also get every point."""
        self._run_dir = run_dir
        self._on_failure = on_failure
        self._trackers = trackers

    def close(self) -> None:
        """Let viewers finish, which is bounded to some seconds. May be called again."""
        if self._trackers is not None:
            self._trackers.close()

    def add_point(self, point: Mapping[str, Any]) -> None:
        """Append a point of the learning curve. A point that cannot be written is lost."""
        if self._trackers is not None:
            self._trackers.add(point)
        try:
            add_point(self._run_dir, point)
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
        """Write the lineage if it could not be written when it was opened."""
        try:
            keep_lineage(self._run_dir, lineage)
        except OSError as error:
            self.failed(LINEAGE_FILE, error)

    def failed(self, file: str, error: OSError) -> None:
        """Count and log that ``file`` could not be written."""
        self._on_failure(file)
        warn_limited(f"write {file}", "cannot write a file of the run", file=str(self._run_dir / file), reason=error.strerror or str(error))
