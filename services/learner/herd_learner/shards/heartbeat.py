"""Who still lives: a thread that beats for this shard and watches the others, and one that watches the first.

Collectives wait as long as their slowest member, and cannot be interrupted: a shard that was stopped would hold the others for ever.
So the thread that finds a shard silent ends this process at once, as a kill would, with `EXIT_SHARD_LOST`: whoever started it starts
it again, and the new group goes on from the newest checkpoint.

The store is at shard 0. Where that process is stopped, or its machine vanishes, a question to it never returns, whatever its time-out.
So a second thread, which asks nobody anything, looks at when the last answer came.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from herd.service.startup import EXIT_SHARD_LOST
from herd.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import Store  # type: ignore[attr-defined]

INTERVAL_SECONDS = 0.5
GOODBYE_SECONDS = 5.0
"""Longest wait for the thread that beats to end: it may be in a question that never returns."""
_GOODBYE = b"bye"


class Silence:
    """Judges beats, which are counters: a shard is lost when its counter has stood still for too long. No clock, no store."""

    def __init__(self, size: int, timeout_seconds: float, now: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._last: list[tuple[bytes, float]] = [(b"", now)] * size

    def lost(self, beats: list[bytes], now: float) -> list[int]:
        """Ranks that are silent, given everybody's newest beat."""
        self._last = [(beat, now) if beat != known[0] else known for beat, known in zip(beats, self._last, strict=True)]
        return [rank for rank, (beat, at) in enumerate(self._last) if now - at > self._timeout_seconds and beat != _GOODBYE]

    def forgive(self, now: float) -> None:
        """This process itself stood still: nobody was silent up to now."""
        self._last = [(beat, now) for beat, _ in self._last]


class Heartbeat:
    """Beats until `stop`; ``give_up`` is called, once, with what was found."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        timeout_seconds: float,
        give_up: Callable[[str], None] | None = None,
    ) -> None:
        """``store``: a connection of its own. Beats once before it returns."""
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
        """Begin, once every shard has beaten once."""
        self._reached_at = time.monotonic()
        self._thread.start()
        self._watchdog.start()

    def stop(self) -> None:
        """After the last thing that shards do together: say goodbye. From here on others may go, as this one may for them."""
        self._stopping.set()
        for thread in (self._thread, self._watchdog):
            if thread.is_alive():
                thread.join(GOODBYE_SECONDS)

    def end_if_silent(self) -> None:
        """Give the watch the time that it needs to find a silent shard, which ends this process; else return."""
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
        """Shard 0 serves the store. Gone, it does not come back as the same group. No input or output here."""
        excused_at = looked_at = time.monotonic()
        while not self._stopping.wait(INTERVAL_SECONDS):
            before, looked_at = looked_at, time.monotonic()
            if looked_at - before > INTERVAL_SECONDS + self._timeout_seconds:
                # Stopped and resumed with its container or machine: shard 0 has had no chance to answer.
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
    """As a kill: nothing of this process is worth saving but the checkpoints on disk."""
    get_logger().error(
        "the group of learner shards is broken: this process exits, to be restarted from the newest checkpoint", reason=reason
    )
    os._exit(EXIT_SHARD_LOST)
