"""The learner's side of the replay service: one thread that inserts consumed unrolls and fetches replayed unrolls in advance.

The thread owns the client's sockets. It writes replayed unrolls directly into the memory of coming batches, after the rows for online
unrolls, so that the replayed part of a batch is ready when the training thread needs it. Each shard of a learner has its own thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.rpc.codec import MalformedMessage
from herd.telemetry.logs import get_logger, warn_limited
from herd_learner.batches.stock import EpisodeStock, UnrollStock
from herd_learner.intake.queue import neighbours

if TYPE_CHECKING:
    from herd.components.replay.shared import SharedReplay as SharedReplaySettings
    from herd.protocols.replay.client import ReplayClient
    from herd.training.batch import BatchBuffer
    from herd_learner.intake.queue import QueuedUnroll

POLL_SECONDS = 0.005
"""Longest sleep of the thread; bounds the delay of unrolls passed by the training thread."""
BACKLOG_BATCHES = 4
"""Batches of consumed unrolls that may wait for the thread; further unrolls are not inserted."""


class Origin(NamedTuple):
    """The origin of a replayed unroll."""

    agent: int
    policy_version: tuple[int, int]
    """(lineage, learner_updates) of that agent."""


class SharedReplay:
    """Usage: start it, pass it consumed unrolls, take buffers with replayed rows, close it.

    The training thread calls ``wait``, ``take`` and ``give_back``; it owns a buffer between the last two.
    """

    def __init__(
        self,
        client: ReplayClient,
        settings: SharedReplaySettings,
        buffers: list[BatchBuffer],
        *,
        num_online: int,
        num_replayed: int,
        whole_episodes: bool,
    ) -> None:
        """``buffers``: ``settings.prefetch_batches`` more than the training thread holds; replayed rows follow ``num_online`` rows."""
        self._client = client
        self._settings = settings
        self._num_online = num_online
        self._num_replayed = num_replayed
        self._whole_episodes = whole_episodes
        self._stock = (EpisodeStock if whole_episodes else UnrollStock)(num_replayed, settings.prefetch_batches)
        self._changed = threading.Condition()
        # Guarded by the lock:
        self._free = deque(buffers)
        self._ready: deque[tuple[BatchBuffer, list[Origin]]] = deque()
        self._consumed: deque[QueuedUnroll] = deque()
        self._gives = False
        """Whether replayed unrolls have arrived since the service reached its minimum, so that `wait` waits for them."""
        self._begins_new_episodes = False
        """Whether the thread must begin new episodes, see `begin_new_episodes`."""
        self._is_late = False
        """Whether a batch has timed out since the last replayed unrolls arrived."""
        # Used only by the thread:
        self._filling: BatchBuffer | None = None
        self._origins: list[Origin] = []
        self._is_filled = False
        self._stopping = False
        self._log = get_logger()
        self._thread = threading.Thread(target=self._run, name="learner-replay", daemon=True)
        self.failure: BaseException | None = None
        """The error that ended the thread; None if `close` did."""
        self.num_timeouts = 0
        """Number of batches that timed out."""
        self.num_damaged = 0
        """Number of replayed unrolls that could not be read."""
        self.num_not_inserted = 0
        """Number of consumed unrolls dropped because the thread had no room."""

    @property
    def num_inserts_dropped(self) -> int:
        """Number of consumed unrolls that never reached the service; it cannot store their episodes."""
        return self.num_not_inserted + self._client.num_dropped_unrolls

    @property
    def num_discarded_episodes(self) -> int:
        """Number of episodes that the service could not keep since it started."""
        return self._client.num_discarded_episodes

    @property
    def is_ready(self) -> bool:
        """Whether `wait` would return at once."""
        with self._changed:
            return not self._waits()

    def start(self) -> None:
        """Start inserting and requesting."""
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
        """Insert unrolls of a batch into replay."""
        with self._changed:
            if len(self._consumed) < BACKLOG_BATCHES * self._num_online:
                self._consumed.extend(unrolls)
            else:
                self.num_not_inserted += len(unrolls)

    def wait(self) -> bool:
        """Return whether the replayed rows of the next buffer are ready.

        Waits at most ``settings.timeout_seconds`` if replay has delivered before; after a timeout, not again until they are taken.
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
            return bool(self._ready)

    def take(self, *, with_replayed: bool) -> tuple[BatchBuffer, list[Origin]]:
        """Return a buffer and the origins of its replayed rows, which must be ready; or else one without any, and keep those for later."""
        with self._changed:
            if with_replayed:
                self._is_late = False
                return self._ready.popleft()
            return self._free.popleft(), []

    def give_back(self, buffer: BatchBuffer) -> None:
        """Return a buffer from `take`, to be written again."""
        with self._changed:
            self._free.append(buffer)

    def begin_new_episodes(self) -> None:
        """Drop the replayed unrolls of batches not taken yet, and the rest of their episodes.

        For recurrent agents whose slots have lost the states of these episodes. New ones begin with a reset.
        """
        if not self._whole_episodes:
            return
        with self._changed:
            self._free.extend(buffer for buffer, _ in self._ready)
            self._ready.clear()
            self._begins_new_episodes = True

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
        """Do one round of the thread's work; return whether there is more to do at once."""
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
            # The service restarted without its contents; half of the minimum, because the stored amount varies.
            self._is_filled = False
            with self._changed:
                self._gives = False
        if not self._is_filled:
            return
        count, parts = self._stock.ask()
        if count:
            self._client.request(count, whole_episodes=self._whole_episodes)
        for part in parts:
            self._client.request_next(part)

    def _fill(self) -> bool:
        """Write the stock into the current batch; return whether there is more to do."""
        with self._changed:
            if self._begins_new_episodes:
                self._begins_new_episodes = False
                self._stock.begin_new_episodes()
                self._origins = []
                return True
            if self._filling is None:
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
            self._origins.append(Origin(unroll.agent, unroll.policy_version))
        with self._changed:
            if self._begins_new_episodes:
                return True
            self._ready.append((self._filling, self._origins))
            self._gives = self._is_filled
            self._changed.notify()
        self._filling, self._origins = None, []
        return True
