"""Who still lives: a thread that beats for this shard and watches the others.

Collectives wait as long as their slowest member, and cannot be interrupted: a shard that was stopped would hold the others for ever.
So the thread that finds a shard silent ends this process at once, as a kill would, with `EXIT_SHARD_LOST`: whoever started it starts
it again, and the new group goes on from the newest checkpoint.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from herd.process.startup import EXIT_SHARD_LOST
from herd.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import Store  # type: ignore[attr-defined]

INTERVAL_SECONDS = 0.5


class Silence:
    """Judges beats, which are counters: a shard is lost when its counter has stood still for too long. No clock, no store."""

    def __init__(self, size: int, timeout_seconds: float, now: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._last: list[tuple[bytes, float]] = [(b"", now)] * size

    def lost(self, beats: list[bytes], now: float) -> list[int]:
        """Ranks that are silent, given everybody's newest beat."""
        self._last = [(beat, now) if beat != known[0] else known for beat, known in zip(beats, self._last, strict=True)]
        return [rank for rank, (_, at) in enumerate(self._last) if now - at > self._timeout_seconds]


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
        self._beat(0)
        self._thread = threading.Thread(target=self._run, name="shard-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin, once every shard has beaten once."""
        self._thread.start()

    def stop(self) -> None:
        """Before the last thing that shards do together: from here on others may go."""
        self._stopping.set()

    def end_if_silent(self) -> None:
        """Give the watch the time that it needs to find a silent shard, which ends this process; else return."""
        if not self._stopping.is_set():
            self._thread.join(self._timeout_seconds + 4 * INTERVAL_SECONDS)

    def _beat(self, number: int) -> None:
        self._store.set(self._keys[self._rank], str(number))

    def _run(self) -> None:
        silence = Silence(len(self._keys), self._timeout_seconds, time.monotonic())
        number = 0
        reached_at = time.monotonic()
        while not self._stopping.wait(INTERVAL_SECONDS):
            number += 1
            try:
                self._beat(number)
                lost = silence.lost(self._store.multi_get(self._keys), time.monotonic())
                reached_at = time.monotonic()
            except RuntimeError:
                # Shard 0 serves the store. Gone, it does not come back as the same group; busy, it may answer the next time.
                lost = [0] if time.monotonic() - reached_at > self._timeout_seconds else []
            if lost and not self._stopping.is_set():
                shards = ", ".join(map(str, lost))
                self._give_up(f"learner shard {shards} has been silent for {self._timeout_seconds:g} s")
                return


def end_process(reason: str) -> None:
    """As a kill: nothing of this process is worth saving but the checkpoints on disk."""
    get_logger().error("the group of learner shards is broken: ending, to start again from the newest checkpoint", reason=reason)
    os._exit(EXIT_SHARD_LOST)
