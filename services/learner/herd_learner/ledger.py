"""The ledger: where every env frame that any actor reported has gone, and which messages were already taken.

``generated == consumed + sum(dropped.values()) + in_flight`` in every snapshot. ``generated`` is the sum, over
(actor, incarnation), of the cumulative count in the last message header received from it. The accounts that drop
duplicates live here too, so that a checkpoint holds both as of one moment.

The same is booked for each task, as far as its frames are known by task: those of unusable arrays, and those of messages that a learner
acknowledged and took with it, are in the totals alone (``LedgerSnapshot.unattributed``).
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from herd_learner.queue import QueuedUnroll

LEARNER_RESTART = "learner_restart"
"""Acknowledged, but lost with the learner before an update consumed it."""
MALFORMED = "malformed"
"""The header counted, the arrays were unusable."""
STALE = "stale"
"""Begun under a policy older than ``learner.max_policy_lag`` updates, of an abandoned lineage, or not made yet."""


MAX_ACCOUNTS = 65_536
"""Incarnations remembered: 16 restarts of each of 4,000 actors, 16 MB. Those without a session are forgotten first, the longest silent
of them before the others; there are at most 16,384 sessions (``herd.wire.credit.MAX_SESSIONS``)."""

MAX_SKIPPED = 1 << 24
"""Messages that an actor may say were accepted before: ten a second for 19 days. Each of them can be booked as dropped, so that whoever
says more would make the account of the run worthless."""

ActorKey = tuple[int, int]
"""(actor_index, incarnation)."""


class Verdict(Enum):
    """What to do with a message, judged by its header alone."""

    NEXT = auto()
    """The next one in sequence: take it."""
    DUPLICATE = auto()
    """Already taken: acknowledge again, count nothing."""
    OUT_OF_SEQUENCE = auto()
    """Something before it is missing: the actor must say hello."""
    INCONSISTENT = auto()
    """Its cumulative count cannot be: lower than what the actor reported before, or higher than all it can have sent since."""


@dataclass(slots=True)
class Account:
    """The last message taken from one incarnation."""

    sequence: int = 0
    generated: int = 0


@dataclass(slots=True)
class Frames:
    """Where the env frames of one task, or all of them, have gone. Python's integers: no count is ever rounded."""

    generated: int = 0
    consumed: int = 0
    in_flight: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def is_balanced(self) -> bool:
        """Whether every generated frame is accounted for."""
        return self.generated == self.consumed + self.in_flight + sum(self.dropped.values())

    def add(self, other: Frames, sign: int = 1) -> None:
        """Add up, or take off with ``sign`` -1."""
        self.generated += sign * other.generated
        self.consumed += sign * other.consumed
        self.in_flight += sign * other.in_flight
        for reason, count in other.dropped.items():
            self.dropped[reason] += sign * count

    def copy(self) -> Frames:
        """Apart from this one."""
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
    """One consistent reading, in env frames."""

    total: Frames = field(default_factory=Frames)
    tasks: dict[int, Frames] = field(default_factory=dict)
    """By task id, those that any frame was booked for."""
    accounts: dict[ActorKey, tuple[int, int]] = field(default_factory=dict)
    """(actor_index, incarnation) -> (sequence, generated), least recently heard first."""

    @property
    def is_balanced(self) -> bool:
        """Whether every generated frame is accounted for, in all and by task, and nothing is booked for a task beyond the totals."""
        rest = self.unattributed
        counts = (rest.generated, rest.consumed, rest.in_flight, *rest.dropped.values())
        return self.total.is_balanced and all(task.is_balanced for task in self.tasks.values()) and min(counts) >= 0

    @property
    def unattributed(self) -> Frames:
        """Frames whose task nobody can tell any more: the totals less what is booked by task."""
        rest = self.total.copy()
        for task in self.tasks.values():
            rest.add(task, -1)
        return rest

    def task(self, task_id: int) -> Frames:
        """Of one task; zeros where nothing was booked for it."""
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
        """The global ledger: sums, and everybody's accounts.

        An incarnation sends to one shard only (each link of an actor has its own); other shards may hold its account as of a checkpoint.
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
        """The accounts alone: what a shard other than the first starts from, so that a restored sum counts once."""
        return LedgerSnapshot(accounts=self.accounts)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> LedgerSnapshot:
        """Inverse of `as_json`. Checkpoints of versions that did not count by task have totals alone."""
        accounts = {(index, incarnation): (sequence, generated) for index, incarnation, sequence, generated in state["accounts"]}
        tasks = {task_id: Frames.from_json(frames) for task_id, frames in state.get("tasks", [])}
        return cls(Frames.from_json(state), tasks, accounts)


class Ledger:
    """Counts env frames through the learner; safe to use from the I/O thread and the training thread."""

    def __init__(self, restored: LedgerSnapshot | None = None) -> None:
        """Start empty, or from a checkpoint: what was in flight then died with that learner."""
        restored = restored or LedgerSnapshot()
        self._lock = threading.Lock()
        # Booked by processes before this one. What was in flight is not: it is lost by this start.
        self._before = restored.total.copy()
        self._total = _lost_in_flight(restored.total)
        self._tasks = {task_id: _lost_in_flight(frames) for task_id, frames in restored.tasks.items()}
        self._accounts = OrderedDict((key, Account(*account)) for key, account in restored.accounts.items())
        # Who is in a session, and the sequence before the oldest that it can still send. Kept apart from the accounts, which only
        # a message that was taken may make or change: a hello costs nothing.
        self._sessions: dict[ActorKey, int] = {}

    def on_hello(self, actor: ActorKey, oldest_sequence: int) -> int:
        """The last sequence taken from ``actor``, moved up to just before the oldest message that it can still send. Opens its session."""
        with self._lock:
            known = self._accounts.get(actor)
            accepted = max(known.sequence if known is not None else 0, oldest_sequence - 1)
            self._sessions[actor] = accepted
            return accepted

    def can_skip_to(self, actor: ActorKey, oldest_sequence: int) -> bool:
        """Whether so many messages of ``actor`` may have been accepted and forgotten."""
        with self._lock:
            known = self._accounts.get(actor)
            return oldest_sequence - 1 - (known.sequence if known is not None else 0) <= MAX_SKIPPED

    def on_session_end(self, actor: ActorKey) -> None:
        """``actor`` is no longer in a session; its account stays while there is room."""
        with self._lock:
            self._sessions.pop(actor, None)
            if actor in self._accounts:
                self._accounts.move_to_end(actor)

    def judge(self, actor: ActorKey, *, sequence: int, generated: int, num_frames: int, most_frames: int = 2**63 - 1) -> Verdict:
        """Whether a message with this header is to be taken; changes nothing.

        ``most_frames`` is what one message of this actor can hold: it bounds what the skipped ones can have held.
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
        """Book a message judged NEXT whose unrolls go into the queue; ``frames``: of this message, by task id.

        Frames that its cumulative count holds beyond what is known were acknowledged by a learner that then died.
        """
        with self._lock:
            self._book(actor, sequence, generated, sum(frames.values()))
            for task_id, num_frames in frames.items():
                for booked in (self._total, self._tasks.setdefault(task_id, Frames())):
                    booked.in_flight += num_frames
                self._tasks[task_id].generated += num_frames

    def refuse(self, actor: ActorKey, *, sequence: int, generated: int, num_frames: int, reason: str) -> None:
        """Book a message judged NEXT whose unrolls cannot be used: nobody knows the tasks of its frames."""
        with self._lock:
            self._book(actor, sequence, generated, num_frames)
            self._total.dropped[reason] += num_frames

    def consume(self, frames: Mapping[int, int]) -> None:
        """Queued frames, by task id, went through an update."""
        with self._lock:
            for task_id, num_frames in frames.items():
                for booked in (self._total, self._tasks[task_id]):
                    booked.in_flight -= num_frames
                    booked.consumed += num_frames

    def drop(self, reason: str, frames: Mapping[int, int]) -> None:
        """Queued frames, by task id, were thrown away."""
        with self._lock:
            for task_id, num_frames in frames.items():
                for booked in (self._total, self._tasks[task_id]):
                    booked.in_flight -= num_frames
                    booked.dropped[reason] += num_frames

    def snapshot(self) -> LedgerSnapshot:
        """A consistent copy."""
        with self._lock:
            accounts = {key: (account.sequence, account.generated) for key, account in self._accounts.items()}
            return LedgerSnapshot(self._total.copy(), {task_id: frames.copy() for task_id, frames in self._tasks.items()}, accounts)

    def totals(self) -> Frames:
        """Of all tasks together: cheap, however many accounts there are."""
        with self._lock:
            return self._total.copy()

    def generated_since_start(self) -> int:
        """Without the checkpoint's: for a counter that begins with the process, as rates expect."""
        with self._lock:
            return self._total.generated - self._before.generated

    def dropped_since_start(self, reason: str) -> int:
        """Likewise, for one reason. What was in flight at the checkpoint is among them, since this start lost it."""
        with self._lock:
            return self._total.dropped[reason] - self._before.dropped[reason]

    def _book(self, actor: ActorKey, sequence: int, generated: int, num_frames: int) -> None:
        """The message in its account, and what its count says of messages that are gone."""
        account = self._account(actor)
        num_missing = generated - account.generated - num_frames
        account.sequence, account.generated = sequence, generated
        self._total.generated += num_frames + num_missing
        if num_missing:
            self._total.dropped[LEARNER_RESTART] += num_missing

    def _account(self, actor: ActorKey) -> Account:
        account = self._accounts.setdefault(actor, Account())
        self._accounts.move_to_end(actor)
        # Ends: there are fewer sessions than accounts may be. One in a session goes to the back, so that each is passed over once a round.
        while len(self._accounts) > MAX_ACCOUNTS:
            oldest = next(iter(self._accounts))
            if oldest in self._sessions:
                self._accounts.move_to_end(oldest)
            else:
                del self._accounts[oldest]
        return account


def _lost_in_flight(frames: Frames) -> Frames:
    """What was in flight died with the learner before."""
    after = frames.copy()
    if after.in_flight:
        after.dropped[LEARNER_RESTART] += after.in_flight
        after.in_flight = 0
    return after


def frames_by_task(unrolls: Iterable[QueuedUnroll]) -> dict[int, int]:
    """Env frames of unrolls, by task id."""
    frames: dict[int, int] = {}
    for unroll in unrolls:
        frames[unroll.task_id] = frames.get(unroll.task_id, 0) + unroll.num_frames
    return frames
