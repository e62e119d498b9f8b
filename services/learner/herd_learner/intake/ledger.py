"""The ledger: counts what happened to every env frame that actors reported, and remembers which messages were accepted.

``generated == consumed + sum(dropped.values()) + in_flight`` in every snapshot. ``generated`` is the sum, over
(actor, incarnation), of the cumulative count in the last message header received from it. The accounts that drop
duplicates live here too, so that a checkpoint holds both as of one moment.

The same is counted for each task. Frames whose task is unknown (of unusable arrays, and of messages that a dead learner had acknowledged)
are only in the totals (``LedgerSnapshot.unattributed``).
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from herd.protocols.unrolls.metrics import LEARNER_RESTART

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from herd_learner.intake.queue import QueuedUnroll

MAX_ACCOUNTS = 65_536
"""Incarnations remembered: 16 restarts of each of 4,000 actors, 16 MB. Those without a session are forgotten first, the longest silent
of them before the others; there are at most 16,384 sessions (``herd.protocols.unrolls.credit.MAX_SESSIONS``)."""

MAX_SKIPPED = 1 << 24
"""Messages that an actor may say were accepted before: ten a second for 19 days. Each of them can be booked as dropped, so that whoever
says more would make the account of the run worthless."""

ActorKey = tuple[int, int]
"""(actor_index, incarnation)."""


class Verdict(Enum):
    """What to do with a message, according to its header."""

    NEXT = auto()
    """The next one in sequence: accept it."""
    DUPLICATE = auto()
    """Already accepted: acknowledge it again, and count nothing."""
    OUT_OF_SEQUENCE = auto()
    """An earlier message is missing: the actor must send a hello."""
    INCONSISTENT = auto()
    """Its cumulative count is impossible: lower than before, or higher than all that the actor can have sent since."""


@dataclass(slots=True)
class Account:
    """The last accepted message of an incarnation."""

    sequence: int = 0
    generated: int = 0


@dataclass(slots=True)
class Frames:
    """What happened to the env frames of a task or of all tasks. Python's integers are never rounded."""

    generated: int = 0
    consumed: int = 0
    in_flight: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def is_balanced(self) -> bool:
        """Whether every generated frame is accounted for."""
        return self.generated == self.consumed + self.in_flight + sum(self.dropped.values())

    def add(self, other: Frames, sign: int = 1) -> None:
        """Add the other counts, or subtract them with ``sign`` -1."""
        self.generated += sign * other.generated
        self.consumed += sign * other.consumed
        self.in_flight += sign * other.in_flight
        for reason, count in other.dropped.items():
            self.dropped[reason] += sign * count

    def copy(self) -> Frames:
        """Return a copy."""
        return Frames(self.generated, self.consumed, self.in_flight, Counter(self.dropped))

    def as_json(self) -> dict[str, Any]:
        """For reports and checkpoints."""
        dropped = {reason: count for reason, count in sorted(self.dropped.items()) if count}
        return {"generated": self.generated, "consumed": self.consumed, "dropped": dropped, "in_flight": self.in_flight}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Frames:
        """Inverse of `as_json`."""
        return cls(state["generated"], state["consumed"], state["in_flight"], Counter(state["dropped"]))


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """A consistent snapshot, in env frames."""

    total: Frames = field(default_factory=Frames)
    tasks: dict[int, Frames] = field(default_factory=dict)
    """Counts by task id, for tasks with any frames."""
    accounts: dict[ActorKey, tuple[int, int]] = field(default_factory=dict)
    """(actor_index, incarnation) -> (sequence, generated), least recently heard first."""

    @property
    def is_balanced(self) -> bool:
        """Whether every generated frame is accounted for, in total and by task, and no task exceeds the totals."""
        rest = self.unattributed
        counts = (rest.generated, rest.consumed, rest.in_flight, *rest.dropped.values())
        return self.total.is_balanced and all(task.is_balanced for task in self.tasks.values()) and min(counts) >= 0

    @property
    def unattributed(self) -> Frames:
        """Frames whose task is unknown: the totals minus the counts by task."""
        rest = self.total.copy()
        for task in self.tasks.values():
            rest.add(task, -1)
        return rest

    def task(self, task_id: int) -> Frames:
        """Return the counts of a task; zeros if it has none."""
        return self.tasks.get(task_id, Frames())

    def report(self) -> dict[str, Any]:
        """The ``accounting`` section of report.json."""
        return self.total.as_json()

    def as_json(self) -> dict[str, Any]:
        """For checkpoints."""
        return self.report() | {
            "tasks": [[task_id, frames.as_json()] for task_id, frames in sorted(self.tasks.items())],
            "accounts": [[*key, *account] for key, account in self.accounts.items()],
        }

    @classmethod
    def of_shards(cls, snapshots: Sequence[LedgerSnapshot]) -> LedgerSnapshot:
        """Return the global ledger: sums, and the accounts of all shards.

        An incarnation sends to only one shard (each link of an actor has its own); other shards may have its account from a checkpoint.
        """
        total = Frames()
        tasks: dict[int, Frames] = {}
        accounts: dict[ActorKey, tuple[int, int]] = {}
        for snapshot in snapshots:
            total.add(snapshot.total)
            for task_id, frames in snapshot.tasks.items():
                tasks.setdefault(task_id, Frames()).add(frames)
            for key, account in snapshot.accounts.items():
                accounts[key] = max(account, accounts.get(key, account))
        return cls(total, tasks, accounts)

    def without_totals(self) -> LedgerSnapshot:
        """Return only the accounts, from which shards other than the first start, so that a restored sum counts once."""
        return LedgerSnapshot(accounts=self.accounts)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> LedgerSnapshot:
        """Inverse of `as_json`."""
        accounts = {(index, incarnation): (sequence, generated) for index, incarnation, sequence, generated in state["accounts"]}
        tasks = {task_id: Frames.from_json(frames) for task_id, frames in state["tasks"]}
        return cls(Frames.from_json(state), tasks, accounts)


class Ledger:
    """Counts env frames in the learner; may be used by the I/O thread and the training thread."""

    def __init__(self, restored: LedgerSnapshot | None = None) -> None:
        """Start empty, or from a checkpoint. Frames that were in flight then are lost."""
        restored = restored or LedgerSnapshot()
        self._lock = threading.Lock()
        # Counted by earlier processes. Frames in flight are not included, because this start lost them.
        self._before = restored.total.copy()
        self._total = _lost_in_flight(restored.total)
        self._tasks = {task_id: _lost_in_flight(frames) for task_id, frames in restored.tasks.items()}
        self._accounts = OrderedDict((key, Account(*account)) for key, account in restored.accounts.items())
        # Actors in a session, and the sequence before the oldest message that each can still send. Separate from the accounts, which only
        # an accepted message may create or change, so that a hello has no cost.
        self._sessions: dict[ActorKey, int] = {}

    def on_hello(self, actor: ActorKey, oldest_sequence: int) -> int:
        """Open the session of ``actor``; returns its last accepted sequence, at least the one before the oldest that it can still send."""
        with self._lock:
            known = self._accounts.get(actor)
            accepted = max(known.sequence if known is not None else 0, oldest_sequence - 1)
            self._sessions[actor] = accepted
            return accepted

    def can_skip_to(self, actor: ActorKey, oldest_sequence: int) -> bool:
        """Return whether this many messages of ``actor`` may have been accepted and forgotten."""
        with self._lock:
            known = self._accounts.get(actor)
            return oldest_sequence - 1 - (known.sequence if known is not None else 0) <= MAX_SKIPPED

    def on_session_end(self, actor: ActorKey) -> None:
        """End the session of ``actor``; its account is kept while there is room."""
        with self._lock:
            self._sessions.pop(actor, None)
            if actor in self._accounts:
                self._accounts.move_to_end(actor)

    def judge(self, actor: ActorKey, *, sequence: int, generated: int, num_frames: int, most_frames: int = 2**63 - 1) -> Verdict:
        """Decide whether a message with this header is accepted; changes nothing.

        ``most_frames`` is the largest number of frames in a message of this actor, which bounds the frames of skipped messages.
        """
        with self._lock:
            account = self._accounts.get(actor, Account())
            accepted = max(account.sequence, self._sessions.get(actor, 0))
            if sequence <= accepted:
                return Verdict.DUPLICATE
            if sequence > accepted + 1:
                return Verdict.OUT_OF_SEQUENCE
            num_missing = generated - account.generated - num_frames
            if not 0 <= num_missing <= (accepted - account.sequence) * most_frames:
                return Verdict.INCONSISTENT
            return Verdict.NEXT

    def receive(self, actor: ActorKey, *, sequence: int, generated: int, frames: Mapping[int, int]) -> None:
        """Count a message with verdict NEXT whose unrolls go into the queue. ``frames``: frames of this message, by task id.

        Additional frames in its cumulative count were acknowledged by a learner that then died.
        """
        with self._lock:
            self._book(actor, sequence, generated, sum(frames.values()))
            for task_id, num_frames in frames.items():
                for booked in (self._total, self._tasks.setdefault(task_id, Frames())):
                    booked.in_flight += num_frames
                self._tasks[task_id].generated += num_frames

    def refuse(self, actor: ActorKey, *, sequence: int, generated: int, num_frames: int, reason: str) -> None:
        """Count a message with verdict NEXT whose unrolls cannot be used, so that the tasks of its frames are unknown."""
        with self._lock:
            self._book(actor, sequence, generated, num_frames)
            self._total.dropped[reason] += num_frames

    def consume(self, frames: Mapping[int, int]) -> None:
        """Count queued frames, by task id, that an update was computed on."""
        with self._lock:
            for task_id, num_frames in frames.items():
                for booked in (self._total, self._tasks[task_id]):
                    booked.in_flight -= num_frames
                    booked.consumed += num_frames

    def drop(self, reason: str, frames: Mapping[int, int]) -> None:
        """Count queued frames, by task id, that were dropped."""
        with self._lock:
            for task_id, num_frames in frames.items():
                for booked in (self._total, self._tasks[task_id]):
                    booked.in_flight -= num_frames
                    booked.dropped[reason] += num_frames

    def snapshot(self) -> LedgerSnapshot:
        """Return a consistent copy."""
        with self._lock:
            accounts = {key: (account.sequence, account.generated) for key, account in self._accounts.items()}
            return LedgerSnapshot(self._total.copy(), {task_id: frames.copy() for task_id, frames in self._tasks.items()}, accounts)

    def totals(self) -> Frames:
        """Return the totals over all tasks, at a cost independent of the number of accounts."""
        with self._lock:
            return self._total.copy()

    def generated_since_start(self) -> int:
        """Return generated frames without those of the checkpoint, for a counter that starts with the process."""
        with self._lock:
            return self._total.generated - self._before.generated

    def dropped_since_start(self, reason: str) -> int:
        """Return dropped frames of one reason since the start, including those in flight at the checkpoint, which this start lost."""
        with self._lock:
            return self._total.dropped[reason] - self._before.dropped[reason]

    def _book(self, actor: ActorKey, sequence: int, generated: int, num_frames: int) -> None:
        """Update the account with a message, and count the frames of lost messages that its count implies."""
        account = self._account(actor)
        num_missing = generated - account.generated - num_frames
        account.sequence, account.generated = sequence, generated
        self._total.generated += num_frames + num_missing
        if num_missing:
            self._total.dropped[LEARNER_RESTART] += num_missing

    def _account(self, actor: ActorKey) -> Account:
        account = self._accounts.setdefault(actor, Account())
        self._accounts.move_to_end(actor)
        # This ends, because there are fewer sessions than allowed accounts. An account in a session is moved to the back.
        while len(self._accounts) > MAX_ACCOUNTS:
            oldest = next(iter(self._accounts))
            if oldest in self._sessions:
                self._accounts.move_to_end(oldest)
            else:
                del self._accounts[oldest]
        return account


def _lost_in_flight(frames: Frames) -> Frames:
    """Count frames that were in flight when the previous learner died as lost."""
    after = frames.copy()
    if after.in_flight:
        after.dropped[LEARNER_RESTART] += after.in_flight
        after.in_flight = 0
    return after


def frames_by_task(unrolls: Iterable[QueuedUnroll]) -> dict[int, int]:
    """Return the env frames of unrolls, by task id."""
    frames: dict[int, int] = {}
    for unroll in unrolls:
        frames[unroll.task_id] = frames.get(unroll.task_id, 0) + unroll.num_frames
    return frames
