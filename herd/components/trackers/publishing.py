"""Passes what happens in a run to its trackers. If one is slow, fails or cannot be reached, only its own points are lost."""

from __future__ import annotations

import inspect
import itertools
import os
import queue
import threading
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from herd.components.trackers import TRACKERS, TrackerSettings
from herd.components.trackers.wandb import is_logged_in
from herd.components.user_code import UserCodeError, failure, load_user_code
from herd.telemetry.logs import get_logger, warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from herd.components.registry import Part
    from herd.components.trackers import LoggingSettings
    from herd.components.trackers.api import Run

MAX_WAITING = 256
"""Largest number of waiting points: twenty minutes at one per 5 s, about 0.5 MB with one task."""
CLOSE_SECONDS = 15.0
"""Longest wait for waiting points at the end of a run, which is shorter than the grace period of ``herd train``."""
_HOOKS = "logging.hooks"


class Trackers:
    """Trackers by name, each with a bounded queue and a thread. No call waits, except for `close`."""

    def __init__(self, makers: Mapping[str, Callable[[], object]]) -> None:
        """The threads call ``makers``, because starting a tracker may take long."""
        self._feeds = [_Feed(name, make) for name, make in makers.items()]

    def add(self, point: Mapping[str, Any]) -> None:
        """Queue a point; it must not change any more."""
        for feed in self._feeds:
            feed.put("on_point", point)

    def add_checkpoint(self, directory: Path) -> None:
        """Queue the news of a checkpoint."""
        for feed in self._feeds:
            feed.put("on_checkpoint", directory)

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Let all trackers finish, but do not wait longer than the limit. May be called again."""
        limit = time.monotonic() + timeout_seconds
        for feed in self._feeds:
            feed.end(limit)
        for feed in self._feeds:
            feed.join(limit)


class _Feed:
    """The queue and the thread of one tracker. Calls beyond `MAX_WAITING` are dropped."""

    def __init__(self, name: str, make: Callable[[], object]) -> None:
        self._name = name
        self._make = make
        self._calls: queue.Queue[tuple[str, tuple[object, ...]]] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, method: str, *arguments: object) -> None:
        try:
            self._calls.put_nowait((method, arguments))
        except queue.Full:
            warn_limited(f"{self._name} is slow", "a tracker is too slow: a point was left out", tracker=self._name, waiting=MAX_WAITING)

    def end(self, limit: float) -> None:
        """Let the tracker finish after the calls that wait; give up at ``limit`` on the monotonic clock."""
        with suppress(queue.Full):
            self._calls.put(("on_end", ()), timeout=max(0.0, limit - time.monotonic()))

    def join(self, limit: float) -> None:
        """Wait for the end of the tracker; give up at ``limit`` on the monotonic clock."""
        self._thread.join(max(0.0, limit - time.monotonic()))
        if self._thread.is_alive():
            warn_limited(
                f"{self._name} did not finish",
                "a tracker did not finish: the newest points are missing",
                tracker=self._name,
                waiting=self._calls.qsize(),
            )

    def _run(self) -> None:
        tracker = self._tried("start", self._make)
        for method, arguments in self._in_order(merges=hasattr(tracker, "on_points")):
            if (act := getattr(tracker, method, None)) is not None:
                self._tried(method, partial(act, *arguments))
            if method == "on_end":
                return

    def _in_order(self, *, merges: bool) -> Iterator[tuple[str, tuple[object, ...]]]:
        """Yield the calls as they come; if it ``merges``, all points that wait are one call of ``on_points``."""
        while True:
            calls = [self._calls.get()]
            while merges and not self._calls.empty():
                calls.append(self._calls.get())  # only this thread takes
            for method, group in itertools.groupby(calls, itemgetter(0)):
                if merges and method == "on_point":
                    yield "on_points", ([point for _, (point,) in group],)
                else:
                    yield from group

    def _tried(self, what: str, act: Callable[[], object]) -> object:
        try:
            return act()
        except (Exception, SystemExit) as error:  # any error of foreign code: the run continues
            if warn_limited(f"tracker {self._name}", "a tracker failed", tracker=self._name, call=what, reason=failure(error)):
                get_logger().debug("a tracker's error", exc_info=True)
            return None


def make_trackers(logging: LoggingSettings, run: Run) -> Trackers | None:
    """Start the trackers of a learner; None if the settings name none."""
    makers: dict[str, Callable[[], object]] = {}
    for kind, part in TRACKERS.parts.items():
        own = getattr(logging, kind)
        if own not in (False, "off", None):
            makers[kind] = partial(_made, part, own if isinstance(own, TrackerSettings) else logging, run)
    for name, options in logging.hooks.items():
        makers[name] = partial(_hook, name, run, options or {})
    return Trackers(makers) if makers else None


def _made(part: Part[TrackerSettings], settings: TrackerSettings | LoggingSettings, run: Run) -> object:
    return part.load()(settings, run)


def _hook(name: str, run: Run, options: Mapping[str, Any]) -> object:
    return load_user_code(name, _HOOKS)(run, **options)


def what_is_missing(settings: LoggingSettings) -> str | None:
    """Return why the trackers of the settings cannot be used here, in one line that says what to do; None if they can."""
    wanted = {"tensorboard": settings.tensorboard, "wandb": settings.wandb != "off", "mlflow": settings.mlflow is not None}
    missing = [package for package, is_on in wanted.items() if is_on and find_spec(package) is None]
    if missing:
        keys = " and ".join(f"logging.{package}" for package in missing)
        return f"{keys}: needs {', '.join(missing)}: pip install 'herd-rl[{','.join(missing)}]'"
    if settings.wandb == "online" and not is_logged_in(os.environ):
        return "logging.wandb: online needs an account's key: run wandb login, set WANDB_API_KEY, or choose offline"
    try:
        for name, options in settings.hooks.items():
            inspect.signature(load_user_code(name, _HOOKS)).bind(None, **(options or {}))
    except UserCodeError as error:
        return str(error)
    except TypeError as error:
        return f"{_HOOKS} {name}: does not accept a run and these options: {error}"
    return None
