"""A container's log as lines with their times: whole, bounded, and gone on with after a break without repeating a line."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import urllib3
from kubernetes.client import CoreV1Api

from herd.kube.cluster import READ_SECONDS, Want
from herd.kube.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from herd.kube.cluster import Cluster

LONGEST_LINE_BYTES = 64 << 10
"""What is longer is cut, as container runtimes cut at 16 KiB: memory stays bounded whatever a pod prints."""
_CHUNK_BYTES = 64 << 10
_OVERLAP_SECONDS = 5
"""How much is asked for again after a break: the node's clock and this machine's differ, and the API counts whole seconds."""


class LogLine(NamedTuple):
    """One line, and when the node wrote it (nanoseconds since 1970)."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Which part of a log is wanted; None: no limit."""

    since_seconds: float | None = None
    tail_lines: int | None = None
    previous: bool = False
    """Of the container before the last restart."""


class LogStream:
    """The log of one container of one pod. ``read`` may be called again: it goes on behind the last line it gave."""

    def __init__(self, cluster: Cluster, pod: str, container: str, window: LogWindow) -> None:
        self._cluster = cluster
        self._pod = pod
        self._container = container
        self._window = window
        self._last = 0
        """When the newest line given was written; 0 before any that says when."""
        self._given_at_last = 0
        """Lines given that were written then: several may carry one time."""
        self._response: urllib3.BaseHTTPResponse | None = None

    def read(self, *, follow: bool) -> Iterator[LogLine]:
        """Give lines until the log ends; with ``follow`` until the container does, or the connection breaks.

        Raises:
            KubeError: it cannot be read, or not to its end.

        """
        want = Want("get", "pods/log", self._pod)
        response = self._cluster.open(
            want,
            CoreV1Api(self._cluster.client).read_namespaced_pod_log,
            self._pod,
            self._cluster.namespace,
            read_seconds=None if follow else READ_SECONDS,
            container=self._container,
            follow=follow,
            timestamps=True,
            **self._limits(),
        )
        self._response = response
        try:
            for line in _behind(stamped(split_lines(response.stream(_CHUNK_BYTES))), self._last, self._given_at_last):
                if line.at > self._last:
                    self._last, self._given_at_last = line.at, 0
                if line.at == self._last:
                    self._given_at_last += 1
                yield line
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # ValueError: closed by ``close``
            raise UnreachableError(f"{want}: the log broke off: {error}") from error
        finally:
            response.close()

    def close(self) -> None:
        """End a ``read`` under way in another thread."""
        if self._response is not None:
            try:
                self._response.shutdown()
            except (ValueError, OSError, AttributeError):
                self._response.close()  # it was over anyway

    def _limits(self) -> dict[str, Any]:
        if self._last:
            return {"since_seconds": max(1, math.ceil(time.time() - self._last / 1e9) + _OVERLAP_SECONDS)}
        limits: dict[str, Any] = {"previous": True} if self._window.previous else {}
        if self._window.since_seconds is not None:
            limits["since_seconds"] = max(1, math.ceil(self._window.since_seconds))
        if self._window.tail_lines is not None:
            limits["tail_lines"] = self._window.tail_lines
        return limits


def _behind(lines: Iterable[LogLine], at: int, given: int) -> Iterator[LogLine]:
    """Leave out lines given before a break: those written before ``at``, and the first ``given`` of those written then."""
    for line in lines:
        if line.at < at and line.at:
            continue
        if line.at == at and given:
            given -= 1
            continue
        yield line


def split_lines(chunks: Iterable[bytes], longest: int = LONGEST_LINE_BYTES) -> Iterator[bytes]:
    """Cut a stream of bytes into lines without their ends; the rest of a line longer than ``longest`` bytes is left out."""
    rest, skipping = b"", False
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if not skipping:
                yield line[:longest]
            skipping = False
        if len(rest) > longest:
            if not skipping:
                yield rest[:longest]
            rest, skipping = b"", True
    if rest and not skipping:
        yield rest


def stamped(lines: Iterable[bytes]) -> Iterator[LogLine]:
    """Part each line from the time before it; a line without one counts as written with the line before."""
    at = 0
    for line in lines:
        word, _, rest = line.partition(b" ")
        stamp = nanoseconds(word.decode("ascii", "replace"))
        at = at if stamp is None else stamp
        yield LogLine(at, (line if stamp is None else rest).decode("utf-8", "replace").rstrip("\r"))


def nanoseconds(stamp: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time with up to nine digits after the point; None where it is none."""
    whole, point, rest = stamp.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if point else ""
    zone = rest[len(digits) :] if point else ""
    try:
        moment = datetime.fromisoformat(whole + zone)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000_000 + int(digits[:9].ljust(9, "0"))
