"""A learner's side of the replay service: one thread, which inserts what was consumed and has replayed unrolls ready ahead.

The thread owns the client's sockets. It writes replayed unrolls straight into the memory of coming batches, behind the rows that online
ones will take, so that the training thread finds a batch whose replayed part is there. Each shard of a learner has a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from herd.telemetry.logs import get_logger, warn_limited
from herd.wire.codec import MalformedMessage
from herd_learner.queue import neighbours
from herd_learner.replay_stock import EpisodeStock, UnrollStock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.config.replay import SharedReplay as SharedReplaySettings
    from herd.learning.batch import Slab
    from herd.wire.replay_samples import SampledEpisode, SampledUnrolls
    from herd_learner.queue import QueuedUnroll

POLL_SECONDS = 0.005
"""Longest sleep of the thread: what the training thread hands over waits for it."""
BACKLOG_BATCHES = 4
"""Batches of consumed unrolls that may wait for the thread; what comes beyond is not inserted."""


class Client(Protocol):
    """What is asked of `herd.wire.replay_client.ReplayClient`."""

    @property
    def num_steps_stored(self) -> int | None:
        """Agent steps that the service keeps; None until it was heard."""

    @property
    def num_dropped_unrolls(self) -> int:
        """That a full backlog kept from the service."""

    @property
    def refused(self) -> str | None:
        """Why the service refuses this client."""

    def insert(self, arrays: dict[str, NDArray[np.generic]], num_unrolls: int, actors: NDArray[np.int64]) -> None:
        """Copy unrolls, on their way to the service."""

    def request(self, count: int, *, whole_episodes: bool) -> None:
        """Ask for unrolls, or for episodes."""

    def poll(self, timeout_seconds: float) -> Sequence[SampledUnrolls | SampledEpisode]:
        """What has come."""

    def close(self) -> None:
        """Give the sockets back."""


class Origin(NamedTuple):
    """Of a replayed unroll."""

    agent: int
    policy_version: tuple[int, int]
    """(lineage, learner_updates) of that agent."""


class SharedReplay:
    """Start it, hand it consumed unrolls, take slabs whose replayed rows are written; close it.

    ``take`` and ``give_back`` are the training thread's; a slab is of the training thread from the one to the other.
    """

    def __init__(
        self,
        client: Client,
        settings: SharedReplaySettings,
        slabs: list[Slab],
        *,
        num_online: int,
        num_replayed: int,
        whole_episodes: bool,
    ) -> None:
        """``slabs``: ``settings.prefetch_batches`` more than the training thread ever holds; replayed rows are behind ``num_online``."""
        self._client = client
        self._settings = settings
        self._num_online = num_online
        self._num_replayed = num_replayed
        self._whole_episodes = whole_episodes
        self._stock = (EpisodeStock if whole_episodes else UnrollStock)(num_replayed, settings.prefetch_batches)
        self._changed = threading.Condition()
        # Guarded by it:
        self._free = deque(slabs)
        self._ready: deque[tuple[Slab, list[Origin]]] = deque()
        self._consumed: deque[QueuedUnroll] = deque()
        self._gives = False
        """Replayed unrolls have come since the service's minimum was reached: they are worth waiting for."""
        self._is_late = False
        """A batch has waited in vain since the last ones came."""
        # The thread's own:
        self._filling: Slab | None = None
        self._origins: list[Origin] = []
        self._is_filled = False
        self._stopping = False
        self._log = get_logger()
        self._thread = threading.Thread(target=self._run, name="learner-replay", daemon=True)
        self.failure: BaseException | None = None
        """What ended the thread, if it was not `close`."""
        self.num_timeouts = 0
        """Batches that waited in vain."""
        self.num_damaged = 0
        """Replayed unrolls that could not be read."""
        self.num_not_inserted = 0
        """Consumed unrolls that the thread had no room for."""

    @property
    def num_inserts_dropped(self) -> int:
        """Consumed unrolls that never reached the service; their episodes are lost to it."""
        return self.num_not_inserted + self._client.num_dropped_unrolls

    @property
    def is_ready(self) -> bool:
        """Whether `take` would not wait."""
        with self._changed:
            return not self._waits()

    def start(self) -> None:
        """Begin to insert and to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop and close the sockets; closing again does nothing."""
        if self._stopping:
            return
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()
        self._consumed.clear()

    def consume(self, unrolls: list[QueuedUnroll]) -> None:
        """Take over unrolls that are in a batch, to insert them into replay."""
        with self._changed:
            if len(self._consumed) < BACKLOG_BATCHES * self._num_online:
                self._consumed.extend(unrolls)
            else:
                self.num_not_inserted += len(unrolls)

    def take(self) -> tuple[Slab, list[Origin]]:
        """A slab, and the origins of its replayed rows: none where it is for online unrolls alone.

        Waits ``settings.timeout_seconds`` at most where replay has given unrolls before; then not at all until it does again.
        """
        deadline = time.monotonic() + self._settings.timeout_seconds
        with self._changed:
            while self._waits():
                remaining = deadline - time.monotonic()
                if remaining <= 0.0:
                    self._is_late = True
                    self.num_timeouts += 1
                    break
                self._changed.wait(remaining)
            if self._ready:
                self._is_late = False
                return self._ready.popleft()
            return self._free.popleft(), []

    def give_back(self, slab: Slab) -> None:
        """A slab from `take` may be written again."""
        with self._changed:
            self._free.append(slab)

    def _waits(self) -> bool:
        return self._gives and not self._ready and not self._is_late and self.failure is None

    # -- the thread

    def _run(self) -> None:
        try:
            busy = False
            while not self._stopping:
                busy = self.turn(0.0 if busy else POLL_SECONDS)
        except BaseException as error:
            with self._changed:
                self.failure = error
                self._changed.notify()

    def turn(self, timeout_seconds: float) -> bool:
        """One round of the thread's work; whether there is more to do at once."""
        self._insert_consumed()
        self._ask()
        for sample in self._client.poll(timeout_seconds):
            self._stock.add(sample)
        if self._client.refused is not None:
            warn_limited("replay refused", "the replay service refuses this learner", reason=self._client.refused)
        return self._fill()

    def _insert_consumed(self) -> None:
        with self._changed:
            unrolls = list(self._consumed)
            self._consumed.clear()
        for arrays, first, run in neighbours(unrolls):
            rows = slice(first, first + len(run))
            actors = np.array([unroll.actor for unroll in run], np.int64)
            self._client.insert({name: array[rows] for name, array in arrays.items()}, len(run), actors)

    def _ask(self) -> None:
        stored = self._client.num_steps_stored
        if stored is None:
            return
        minimum = self._settings.minimum_fill_agent_steps
        if not self._is_filled and stored >= max(minimum, 1):
            self._is_filled = True
            self._log.info("replay has reached its minimum", agent_steps=stored)
        elif self._is_filled and stored < minimum // 2:
            # It began anew without what it held; half of the minimum, since what it holds goes up and down.
            self._is_filled = False
            with self._changed:
                self._gives = False
        if self._is_filled and (count := self._stock.ask()):
            self._client.request(count, whole_episodes=self._whole_episodes)

    def _fill(self) -> bool:
        """Write what is in stock into the batch at hand; True where a batch was completed."""
        if self._filling is None:
            with self._changed:
                if len(self._ready) >= self._settings.prefetch_batches or not self._free:
                    return False
                self._filling = self._free.popleft()
        arrays = self._filling.arrays
        while (place := len(self._origins)) < self._num_replayed:
            unroll = self._stock.next(place)
            if unroll is None:
                return False
            try:
                unroll.write_into(arrays, self._num_online + place)
            except MalformedMessage as error:
                self.num_damaged += 1
                self._stock.drop(place)
                warn_limited("damaged replay", "a replayed unroll cannot be read", reason=str(error))
                continue
            arrays["agent_ids"][self._num_online + place] = unroll.agent
            self._origins.append(Origin(unroll.agent, unroll.policy_version))
        with self._changed:
            self._ready.append((self._filling, self._origins))
            self._gives = self._is_filled
            self._changed.notify()
        self._filling, self._origins = None, []
        return True
