"""Detects lost shards: one thread sends this shard's heartbeat and watches the others, and a second one watches the first thread.

Collectives wait for their slowest member and cannot be interrupted, so a stopped shard would block the others forever. Therefore the thread
that finds a shard silent ends this process at once, like a kill, with `EXIT_SHARD_LOST`. The supervisor restarts it, and the new group
continues from the newest checkpoint.

The store is at shard 0. If that process is stopped or its machine is lost, a request to it never returns, regardless of its timeout. So a
second thread, without input or output, watches the time of the last answer.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from herd.service import EXIT_SHARD_LOST
from herd.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import Store  # type: ignore[attr-defined]

INTERVAL_SECONDS = 0.5
GOODBYE_SECONDS = 5.0
"""Longest wait for the end of the heartbeat thread, which may be in a request that never returns."""
_GOODBYE = b"bye"


class Silence:
    """Evaluates heartbeats, which are counters: a shard is lost if its counter has not changed for too long. No clock, no store."""

    def __init__(self, size: int, timeout_seconds: float, now: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._last: list[tuple[bytes, float]] = [(b"", now)] * size

    def lost(self, beats: list[bytes], now: float) -> list[int]:
        """Return the silent ranks, given the newest heartbeats of all."""
        self._last = [(beat, now) if beat != known[0] else known for beat, known in zip(beats, self._last, strict=True)]
        return [rank for rank, (beat, at) in enumerate(self._last) if now - at > self._timeout_seconds and beat != _GOODBYE]

    def forgive(self, now: float) -> None:
        """Restart all time limits, because this process itself was stopped."""
        self._last = [(beat, now) for beat, _ in self._last]


class Heartbeat:
    """Sends heartbeats until `stop`. ``give_up`` is called once, with the reason, if a shard is lost."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        timeout_seconds: float,
        give_up: Callable[[str], None] | None = None,
    ) -> None:
        """``store``: a separate connection. Sends a heartbeat before it returns."""
        self._store = store
        self._rank = rank
        self._keys = [f"beat/{each}" for each in range(size)]
        self._timeout_seconds = timeout_seconds
        self._give_up = give_up or end_process
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._one_gives_up = threading.Lock()
        self._reached_at = time.monotonic()
        self._beat(b"0")
        self._thread = threading.Thread(target=self._run, name="shard-heartbeat", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="shard-watchdog", daemon=True)

    def start(self) -> None:
        """Start to watch, when every shard has sent a heartbeat."""
        self._reached_at = time.monotonic()
        self._thread.start()
        self._watchdog.start()

    def stop(self) -> None:
        """Stop after the last collective operation. From now on all shards may end."""
        self._stopping.set()
        for thread in (self._thread, self._watchdog):
            if thread.is_alive():
                thread.join(GOODBYE_SECONDS)

    def end_if_silent(self) -> None:
        """Wait as long as the detection of a silent shard takes, which ends this process; otherwise return."""
        if not self._stopping.is_set():
            self._given_up.wait(self._timeout_seconds + 4 * INTERVAL_SECONDS)

    def _beat(self, beat: bytes) -> None:
        self._store.set(self._keys[self._rank], beat.decode())

    def _run(self) -> None:
        silence = Silence(len(self._keys), self._timeout_seconds, time.monotonic())
        number = 0
        looked_at = time.monotonic()
        while not self._stopping.wait(INTERVAL_SECONDS):
            number += 1
            try:
                self._beat(b"%d" % number)
                beats = self._store.multi_get(self._keys)
            except RuntimeError:
                continue  # shard 0 may answer the next time; the watchdog counts
            before, looked_at = looked_at, time.monotonic()
            self._reached_at = looked_at
            if looked_at - before > INTERVAL_SECONDS + self._timeout_seconds:
                silence.forgive(looked_at)
            lost = silence.lost(beats, looked_at)
            if lost:
                self._find_lost(lost)
                return
        with suppress(RuntimeError):  # shard 0 may have gone
            self._beat(_GOODBYE)

    def _watch(self) -> None:
        """Watch for answers of the store at shard 0. If shard 0 is lost, this group cannot continue. No input or output here."""
        excused_at = looked_at = time.monotonic()
        while not self._stopping.wait(INTERVAL_SECONDS):
            before, looked_at = looked_at, time.monotonic()
            if looked_at - before > INTERVAL_SECONDS + self._timeout_seconds:
                # This process was stopped and resumed with its container or machine, so shard 0 could not answer.
                excused_at = looked_at
            if looked_at - max(self._reached_at, excused_at) > self._timeout_seconds:
                self._find_lost([0])
                return

    def _find_lost(self, lost: list[int]) -> None:
        with self._one_gives_up:
            if self._stopping.is_set() or self._given_up.is_set():
                return
            shards = ", ".join(map(str, lost))
            try:
                self._give_up(f"learner shard {shards} has been silent for {self._timeout_seconds:g} s")
            finally:
                self._given_up.set()


def end_process(reason: str) -> NoReturn:
    """End this process like a kill: nothing except the checkpoints on disk needs to be saved."""
    get_logger().error(
        "the group of learner shards is broken: this process exits, to be restarted from the newest checkpoint", reason=reason
    )
    os._exit(EXIT_SHARD_LOST)
