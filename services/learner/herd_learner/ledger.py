"""The ledger: where every env frame that any actor reported has gone, and which messages were already taken.

``generated == consumed + sum(dropped.values()) + in_flight`` in every snapshot. ``generated`` is the sum, over
(actor, incarnation), of the cumulative count in the last message header received from it. The accounts that drop
duplicates live here too, so that a checkpoint holds both as of one moment.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LEARNER_RESTART = "learner_restart"
"""Acknowledged, but lost with the learner before an update consumed it."""
MALFORMED = "malformed"
"""The header counted, the arrays were unusable."""
STALE = "stale"
"""Begun under a policy older than ``learner.max_policy_lag`` updates, or of an abandoned lineage."""


MAX_ACCOUNTS = 65_536
"""Incarnations remembered: 16 restarts of each of 4,000 actors, 16 MB. Those without a session are forgotten first, the longest silent
of them before the others; there are at most 16,384 sessions (``herd.wire.credit.MAX_SESSIONS``)."""

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


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """One consistent reading, in env frames."""

    generated: int = 0
    consumed: int = 0
    in_flight: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    accounts: dict[ActorKey, tuple[int, int]] = field(default_factory=dict)
    """(actor_index, incarnation) -> (sequence, generated), least recently heard first."""

    @property
    def is_balanced(self) -> bool:
        """Whether every generated frame is accounted for."""
        return self.generated == self.consumed + self.in_flight + sum(self.dropped.values())

    def report(self) -> dict[str, Any]:
        """The ``accounting`` section of report.json."""
        return {
            "generated": self.generated,
            "consumed": self.consumed,
            "dropped": dict(sorted(self.dropped.items())),
            "in_flight": self.in_flight,
        }

    def as_json(self) -> dict[str, Any]:
        """For checkpoints."""
        return self.report() | {"accounts": [[*key, *account] for key, account in self.accounts.items()]}

    @classmethod
    def of_shards(cls, snapshots: Sequence[LedgerSnapshot]) -> LedgerSnapshot:
        """The global ledger: sums, and everybody's accounts.

        An incarnation sends to one shard only (each link of an actor has its own); other shards may hold its account as of a checkpoint.
        """
        dropped: Counter[str] = Counter()
        accounts: dict[ActorKey, tuple[int, int]] = {}
        for snapshot in snapshots:
            dropped.update(snapshot.dropped)
            for key, account in snapshot.accounts.items():
                accounts[key] = max(account, accounts.get(key, account))
        return cls(
            generated=sum(snapshot.generated for snapshot in snapshots),
            consumed=sum(snapshot.consumed for snapshot in snapshots),
            in_flight=sum(snapshot.in_flight for snapshot in snapshots),
            dropped=dict(dropped),
            accounts=accounts,
        )

    def without_totals(self) -> LedgerSnapshot:
        """The accounts alone: what a shard other than the first starts from, so that a restored sum counts once."""
        return LedgerSnapshot(accounts=self.accounts)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> LedgerSnapshot:
        """Inverse of `as_json`."""
        accounts = {(index, incarnation): (sequence, generated) for index, incarnation, sequence, generated in state["accounts"]}
        return cls(state["generated"], state["consumed"], state["in_flight"], dict(state["dropped"]), accounts)


class Ledger:
    """Counts env frames through the learner; safe to use from the I/O thread and the training thread."""

    def __init__(self, restored: LedgerSnapshot | None = None) -> None:
        """Start empty, or from a checkpoint: what was in flight then died with that learner."""
        restored = restored or LedgerSnapshot()
        self._lock = threading.Lock()
        # Booked by processes before this one. What was in flight is not: it is lost by this start.
        self._generated_before = restored.generated
        self._dropped_before = dict(restored.dropped)
        self._generated = restored.generated
        self._consumed = restored.consumed
        self._in_flight = 0
        self._dropped: Counter[str] = Counter(restored.dropped)
        self._accounts = OrderedDict((key, Account(*account)) for key, account in restored.accounts.items())
        # Who is in a session, and the sequence before the oldest that it can still send. Kept apart from the accounts, which only
        # a message that was taken may make or change: a hello costs nothing.
        self._sessions: dict[ActorKey, int] = {}
        if restored.in_flight:
            self._dropped[LEARNER_RESTART] += restored.in_flight

    def on_hello(self, actor: ActorKey, oldest_sequence: int) -> int:
        """The last sequence taken from ``actor``, moved up to just before the oldest message that it can still send. Opens its session."""
        with self._lock:
            known = self._accounts.get(actor)
            accepted = max(known.sequence if known is not None else 0, oldest_sequence - 1)
            self._sessions[actor] = accepted
            return accepted

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

    def receive(self, actor: ActorKey, *, sequence: int, generated: int, num_frames: int, dropped_as: str | None = None) -> None:
        """Book a message judged NEXT: into the queue, or dropped for the reason given.

        Frames that its cumulative count holds beyond what is known were acknowledged by a learner that then died.
        """
        with self._lock:
            account = self._account(actor)
            num_missing = generated - account.generated - num_frames
            account.sequence, account.generated = sequence, generated
            self._generated += num_frames + num_missing
            if num_missing:
                self._dropped[LEARNER_RESTART] += num_missing
            if dropped_as is None:
                self._in_flight += num_frames
            else:
                self._dropped[dropped_as] += num_frames

    def consume(self, num_frames: int) -> None:
        """Queued frames went through an update."""
        with self._lock:
            self._in_flight -= num_frames
            self._consumed += num_frames

    def drop(self, reason: str, num_frames: int) -> None:
        """Queued frames were thrown away."""
        with self._lock:
            self._in_flight -= num_frames
            self._dropped[reason] += num_frames

    def snapshot(self) -> LedgerSnapshot:
        """A consistent copy."""
        with self._lock:
            accounts = {key: (account.sequence, account.generated) for key, account in self._accounts.items()}
            return LedgerSnapshot(self._generated, self._consumed, self._in_flight, dict(self._dropped), accounts)

    def totals(self) -> LedgerSnapshot:
        """A snapshot without accounts: cheap, however many there are."""
        with self._lock:
            return LedgerSnapshot(self._generated, self._consumed, self._in_flight, dict(self._dropped))

    def generated_since_start(self) -> int:
        """Without the checkpoint's: for a counter that begins with the process, as rates expect."""
        with self._lock:
            return self._generated - self._generated_before

    def dropped_since_start(self, reason: str) -> int:
        """Likewise, for one reason. What was in flight at the checkpoint is among them, since this start lost it."""
        with self._lock:
            return self._dropped[reason] - self._dropped_before.get(reason, 0)

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
