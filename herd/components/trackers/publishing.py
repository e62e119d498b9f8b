"""Passes points to viewers in a separate thread. If a viewer is slow, fails or cannot be reached, only its points are lost."""

from __future__ import annotations

import os
import queue
import threading
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from herd.components.trackers import TRACKERS, TrackerSettings
from herd.components.trackers.wandb.tracker import is_logged_in
from herd.telemetry.logs import get_logger, warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from herd.components.registry import Part
    from herd.components.trackers import LoggingSettings
    from herd.components.trackers.api import Run, Tracker

Made = TypeVar("Made")
MOST_WAITING = 256
"""Largest number of waiting points: twenty minutes at one per 5 s, about 0.5 MB with one task."""
CLOSE_SECONDS = 15.0
"""Longest wait for waiting points at the end of a run, which is shorter than the grace period of ``herd train``."""


class Trackers:
    """A bounded queue and a thread between a learner and its viewers. ``add`` never waits; it drops points beyond `MOST_WAITING`."""

    def __init__(self, makers: Sequence[Callable[[], Tracker]]) -> None:
        """The thread calls ``makers``, because starting a session may take long."""
        self._makers = makers
        self._points: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True)
        self._thread.start()

    def add(self, point: Mapping[str, Any]) -> None:
        """Queue a point; it must not change any more."""
        try:
            self._points.put_nowait(point)
        except queue.Full:
            warn_limited("trackers", "a viewer is too slow: a point was left out", waiting=MOST_WAITING)

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Wait for queued points, but not longer than the limit."""
        try:
            self._points.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        trackers = [tracker for make in self._makers if (tracker := _tried("begin", make)) is not None]
        while (point := self._points.get()) is not None:
            for tracker in trackers:
                _tried(tracker.name, partial(tracker.add, point))
        for tracker in trackers:
            _tried(tracker.name, tracker.close)


def make_trackers(logging: LoggingSettings, run: Run) -> Trackers | None:
    """Return the tracker of a learner; None if the settings name no viewer."""
    makers: list[Callable[[], Tracker]] = []
    for kind, part in TRACKERS.parts.items():
        own = getattr(logging, kind)
        if own not in {False, "off", None}:
            makers.append(partial(_made, part, own if isinstance(own, TrackerSettings) else logging, run))
    return Trackers(makers) if makers else None


def _made(part: Part[TrackerSettings], settings: TrackerSettings | LoggingSettings, run: Run) -> Tracker:
    tracker: Tracker = part.load()(settings, run)
    return tracker


def what_is_missing(settings: LoggingSettings) -> str | None:
    """Return why the viewers of the settings cannot be used here, in one line that says what to do; None if they can."""
    wanted = {"logging.tensorboard": ("tensorboard", settings.tensorboard), "logging.wandb": ("wandb", settings.wandb != "off")}
    missing = {key: package for key, (package, is_on) in wanted.items() if is_on and find_spec(package) is None}
    if missing:
        return f"{' and '.join(missing)}: needs {', '.join(missing.values())}: pip install 'herd-rl[{','.join(missing.values())}]'"
    if settings.wandb == "online" and not is_logged_in(os.environ):
        return "logging.wandb: online needs an account's key: run wandb login, set WANDB_API_KEY, or choose offline"
    return None


def _tried(what: str, act: Callable[[], Made]) -> Made | None:
    try:
        return act()
    except Exception as error:  # any error of a foreign package: the run continues
        if warn_limited(f"tracker {what}", "a viewer did not take a point", viewer=what, reason=str(error).partition("\n")[0]):
            get_logger().debug("a viewer's error", exc_info=True)
        return None
