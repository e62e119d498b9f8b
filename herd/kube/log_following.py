"""Several pods' logs at once: what is there in the order of time, or for as long as somebody looks, through restarts."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from herd.kube.errors import KubeError, NotAllowedError, UnreachableError
from herd.kube.log_streams import LogStream, LogWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.kube.cluster import Cluster
    from herd.kube.pods import Pod

LOOK_SECONDS = 2.0
"""How soon a new pod, or a container that began anew, is noticed."""
_GONE_SECONDS = 30.0
"""A StatefulSet's pod is back within seconds of its deletion; after this long without any pod there is nothing to follow."""
_MOST_WAITING = 1_000
"""Lines read and not printed yet. When the terminal is slow, reading waits, and with it the node: nothing is lost."""


class Said(NamedTuple):
    """A line of a pod, or (``is_note``) of ours about it."""

    pod: str
    text: str
    is_note: bool = False


def read_logs(cluster: Cluster, pods: Sequence[Pod], window: LogWindow) -> Iterator[Said]:
    """Give the lines there are, of all ``pods`` in the order of their times."""

    def lines(pod: Pod) -> Iterator[tuple[int, Said]]:
        at = 0
        try:
            for line in LogStream(cluster, pod.name, pod.container, window).read(follow=False):
                at = line.at
                yield at, Said(pod.name, line.text)
        except KubeError as error:
            yield at, Said(pod.name, str(error), is_note=True)

    for _, said in heapq.merge(*map(lines, pods), key=lambda pair: pair[0]):
        yield said


class Follower:
    """Follows pods that come, restart and go. At most ``most`` at once: one thread and one connection each.

    ``find`` lists the pods to follow, most wanted first.
    """

    def __init__(
        self,
        cluster: Cluster,
        find: Callable[[], Sequence[Pod]],
        window: LogWindow,
        most: int,
        *,
        look_seconds: float = LOOK_SECONDS,
        gone_seconds: float = _GONE_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._find = find
        self._window = window
        self._most = most
        self._look_seconds = look_seconds
        self._gone_seconds = gone_seconds
        self._said: queue.Queue[Said] = queue.Queue(_MOST_WAITING)
        self._streams: dict[tuple[str, int], LogStream] = {}
        """By incarnation; kept while its pod is listed, so that a broken connection goes on where it was."""
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        self._refusals: dict[tuple[str, int], str] = {}
        """What was said of an incarnation whose log cannot be read: once is enough."""
        self._denied: NotAllowedError | None = None
        self._closed = threading.Event()

    def lines(self) -> Iterator[Said]:
        """Give lines until no pod has been there for long; the caller ends it sooner by ``close``.

        Raises:
            KubeError: pods or logs may not be read. What passes (a busy server, a container that is starting) is a note.

        """
        seen_at, first = time.monotonic(), True
        while not self._closed.is_set():
            look_at = time.monotonic() + self._look_seconds
            try:
                pods = self._find()
            except UnreachableError as error:
                yield Said("", f"{error}; trying again", is_note=True)
            else:
                yield from self._start(pods, first=first)
                first = False
                seen_at = time.monotonic() if pods or self._threads else seen_at
                if time.monotonic() - seen_at > self._gone_seconds:
                    yield Said("", "no pod to follow any more", is_note=True)
                    return
            yield from self._until(look_at)
            if self._denied is not None:
                raise self._denied

    def close(self) -> None:
        """End all threads."""
        self._closed.set()
        for stream in self._streams.values():
            stream.close()

    def _start(self, pods: Sequence[Pod], *, first: bool) -> Iterator[Said]:
        self._threads = {key: thread for key, thread in self._threads.items() if thread.is_alive()}
        listed = {pod.incarnation for pod in pods}
        self._streams = {key: stream for key, stream in self._streams.items() if key in listed or key in self._threads}
        self._refusals = {key: said for key, said in self._refusals.items() if key in self._streams}
        for pod in pods:
            key = pod.incarnation
            if key in self._threads or not pod.started or len(self._threads) >= self._most:
                continue
            stream = self._streams.get(key)
            if stream is None:
                # Who came or began anew while we look is read from its first line on.
                window = self._window if first else LogWindow()
                stream = self._streams[key] = LogStream(self._cluster, pod.name, pod.container, window)
                if not first:
                    yield Said(pod.name, f"restart {pod.restarts}" if pod.restarts else "new pod", is_note=True)
            elif pod.state != "Running":
                continue  # it has ended, and its log was read to the end
            self._threads[key] = thread = threading.Thread(
                target=self._read, args=(pod.name, key, stream), name=f"log-{pod.name}", daemon=True
            )
            thread.start()

    def _read(self, pod: str, key: tuple[str, int], stream: LogStream) -> None:
        try:
            for line in stream.read(follow=True):
                self._put(Said(pod, line.text))
        except UnreachableError:
            return  # gone on with at the next look
        except NotAllowedError as error:
            self._denied = error
        except KubeError as error:
            if self._refusals.get(key) != str(error):
                self._refusals[key] = str(error)
                self._put(Said(pod, str(error), is_note=True))

    def _put(self, said: Said) -> None:
        while not self._closed.is_set():
            try:
                self._said.put(said, timeout=0.5)
            except queue.Full:
                continue
            return

    def _until(self, deadline: float) -> Iterator[Said]:
        while (left := deadline - time.monotonic()) > 0 and not self._closed.is_set():
            try:
                yield self._said.get(timeout=left)
            except queue.Empty:
                return
