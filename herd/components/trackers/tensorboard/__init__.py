"""Writes points as TensorBoard event files with the package `tensorboard`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from herd.components.registry import Part
from herd.components.trackers import TrackerSettings
from herd.components.trackers.api import STEP, Tracker, scalars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.components.trackers import LoggingSettings
    from herd.components.trackers.api import Run

FOLDER = "tensorboard"


class EventFiles(Tracker):
    """Writes a new event file for each session of a run. Raises OSError if a point cannot be written."""

    def __init__(self, settings: LoggingSettings, run: Run) -> None:  # noqa: ARG002  it has no settings
        """Create RUN/tensorboard and a file in it; raises ImportError without the package, or OSError."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # suppress messages of TensorFlow, if it is installed
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # noqa: PLC0415  half a second to load, optional
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

        self._event, self._session, self._summary = Event, SessionLog, Summary
        self._writer = EventFileWriter(str(run.directory / FOLDER))
        self._is_first = True

    def on_point(self, point: Mapping[str, Any]) -> None:
        """Write a point and flush it."""
        step, now = int(point[STEP]), time.time()
        if self._is_first:
            # A resumed run continues from a checkpoint. Readers drop the points of earlier sessions from this step on.
            self._writer.add_event(self._event(wall_time=now, step=step, session_log=self._session(status=self._session.START)))
            self._is_first = False
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars(point).items()]
        self._writer.add_event(self._event(wall_time=now, step=step, summary=self._summary(value=values)))
        self._writer.flush()

    def on_end(self) -> None:
        """Close the file."""
        self._writer.close()


PART = Part("tensorboard", TrackerSettings, f"{__name__}:EventFiles")
