"""Structured logs on standard error, as lines of text."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.types import Processor

MAX_LIMITED_KEYS = 1024
"""Largest number of keys. Keys may come from the wire, so all further keys share one, and a foreign client cannot fill the memory."""


def configure_logging(service: str, *, stream: TextIO | None = None, **fields: object) -> None:
    """Set up the logs of this process; the last call wins.

    Every line contains ``fields`` (run, index) and ``service``, and is coloured on a terminal. Lines of the standard ``logging`` module, as
    libraries write them, get the same format.
    """
    target = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_fields({"service": service, **fields}),
    ]
    rendering = structlog.dev.ConsoleRenderer(colors=target.isatty())
    handler = LineHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, rendering]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Loggers are created at import time, before this call, so they must not be cached in their state before it.
        cache_logger_on_first_use=False,
    )


def get_logger(name: str = "herd") -> structlog.stdlib.BoundLogger:
    """Return a logger: ``log.info("listening", port=7100)``. May be called before ``configure_logging``."""
    return structlog.stdlib.get_logger(name)


class LineHandler(logging.Handler):
    """Writes each record as one line; never raises, and waits only for the write itself.

    Lines that cannot be written (a full disk, a closed terminal) are dropped, and the next successful line is followed by their number.
    Nothing is buffered, because flushing a buffer could fail again when the process ends.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._num_lost = 0
        self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line; called by ``logging`` under the handler's lock."""
        try:
            line = self.format(record)
        except Exception:  # as in the standard library's handlers: a record that cannot be formatted must not end the process
            self.handleError(record)
            return
        try:
            self._write(line)
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._num_lost += 1
            return
        if self._num_lost:
            num_lost, self._num_lost = self._num_lost, 0
            get_logger().warning("log lines were lost", num_lost=num_lost)

    def _write(self, line: str) -> None:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # no file behind it, or closed
            self._stream.write(line + "\n")
            self._stream.flush()
            return
        data = f"{chr(10) * self._torn}{line}\n".encode(errors="backslashreplace")
        while data:
            # On a full disk, a write stores the part that fits, and only the next call fails.
            written = os.write(descriptor, data)
            self._torn = data[written - 1 : written] != b"\n"
            data = data[written:]


class LimitedWarnings:
    """Logs at most one warning per key and interval. The next one contains the number of ``suppressed`` warnings.

    Safe from any thread. Remembers at most ``MAX_LIMITED_KEYS`` keys.
    """

    def __init__(
        self,
        logger: structlog.stdlib.BoundLogger,
        *,
        interval_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}

    def warn(self, key: str, event: str, **fields: object) -> bool:
        """Warn, unless there was a warning of this key within the interval; returns whether it warned."""
        now = self._clock()
        with self._lock:
            if key not in self._last and len(self._last) >= MAX_LIMITED_KEYS:
                key = "(other keys)"
            at, suppressed = self._last.get(key, (None, 0))
            if at is not None and now - at < self._interval_seconds:
                self._last[key] = (at, suppressed + 1)
                return False
            self._last[key] = (now, 0)
        if suppressed:
            fields = {**fields, "suppressed": suppressed}
        self._logger.warning(event, **fields)
        return True


_limited = LimitedWarnings(get_logger())


def warn_limited(key: str, event: str, **fields: object) -> bool:
    """Warn at most once a minute per ``key`` in this process, for events that foreign clients or a failing disk can repeat endlessly."""
    return _limited.warn(key, event, **fields)


def _add_fields(fields: dict[str, object]) -> Processor:
    def add(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        for name, value in fields.items():
            event.setdefault(name, value)
        return event

    return add
