from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from herd_learner.intake import ledger as ledger_module
from herd_learner.intake.ledger import Frames, Ledger, LedgerSnapshot, Verdict
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from herd.protocols.unrolls.metrics import LEARNER_RESTART, MALFORMED, STALE

ACTOR = (0, 77)
actors = st.tuples(st.integers(0, 2), st.integers(0, 1))
# Values beyond 2^24, where a float32 stops counting, and beyond 2^53, where a float64 does.
num_frames = st.dictionaries(st.integers(0, 2), st.integers(0, 50) | st.just(2**24 + 1) | st.just(2**53 + 1), max_size=3)


def _take(ledger: Ledger, sequence: int, generated: int, num_frames: int) -> None:
    assert ledger.judge(ACTOR, sequence=sequence, generated=generated, num_frames=num_frames) is Verdict.NEXT
    ledger.receive(ACTOR, sequence=sequence, generated=generated, frames={0: num_frames})


class LedgerMachine(RuleBasedStateMachine):
    """The model counts, independently of the ledger, what each actor sent, what is queued, and where all frames went."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.sent: dict[tuple[int, int], list[dict[int, int]]] = {}
        """Frames of each message by task, indexed by sequence - 1."""
        self.taken: Counter[tuple[int, int]] = Counter()
        self.waiting: list[dict[int, int]] = []
        self.consumed: Counter[int] = Counter()
        """Frames by task."""
        self.dropped: Counter[tuple[str, int | None]] = Counter()
        """Frames by reason and task; None if the task is unknown."""
        self.checkpoint: tuple[str, Counter[tuple[int, int]], Counter[int], Counter[tuple[str, int | None]], Counter[int]] | None = None

    def _send_next(self, actor: tuple[int, int], frames: dict[int, int]) -> tuple[dict[str, int], dict[int, int]]:
        messages = self.sent.setdefault(actor, [])
        if self.taken[actor] == len(messages):
            messages.append(frames)
        sequence = self.taken[actor] + 1
        frames = messages[sequence - 1]
        return {"sequence": sequence, "generated": self._sum(messages[:sequence])}, frames

    @staticmethod
    def _sum(messages: list[dict[int, int]]) -> int:
        return sum(count for frames in messages for count in frames.values())

    @rule(actor=actors, frames=num_frames, dropped_as=st.sampled_from([None, MALFORMED]))
    def next_message(self, actor: tuple[int, int], frames: dict[int, int], dropped_as: str | None) -> None:
        message, frames = self._send_next(actor, frames)
        total = sum(frames.values())
        assert self.ledger.judge(actor, **message, num_frames=total) is Verdict.NEXT
        self.taken[actor] += 1
        if dropped_as is None:
            self.ledger.receive(actor, **message, frames=frames)
            self.waiting.append(frames)
        else:
            self.ledger.refuse(actor, **message, num_frames=total, reason=dropped_as)
            self.dropped[dropped_as, None] += total

    @precondition(lambda self: any(self.taken.values()))
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        actor = data.draw(st.sampled_from(sorted(key for key, taken in self.taken.items() if taken)))
        sequence = data.draw(st.integers(1, self.taken[actor]))
        before = self.ledger.snapshot()
        generated, frames = self._sum(self.sent[actor][:sequence]), sum(self.sent[actor][sequence - 1].values())
        verdict = self.ledger.judge(actor, sequence=sequence, generated=generated, num_frames=frames)
        assert verdict is Verdict.DUPLICATE
        assert self.ledger.snapshot() == before

    @rule(actor=actors, ahead=st.integers(2, 9))
    def out_of_sequence(self, actor: tuple[int, int], ahead: int) -> None:
        before = self.ledger.snapshot()
        verdict = self.ledger.judge(actor, sequence=self.taken[actor] + ahead, generated=10**6, num_frames=1)
        assert verdict is Verdict.OUT_OF_SEQUENCE
        assert self.ledger.snapshot() == before

    @precondition(lambda self: any(self._sum(messages[: self.taken[actor]]) for actor, messages in self.sent.items()))
    @rule(data=st.data())
    def count_went_back(self, data: st.DataObject) -> None:
        counts = {actor: self._sum(messages[: self.taken[actor]]) for actor, messages in self.sent.items()}
        actor = data.draw(st.sampled_from(sorted(actor for actor, count in counts.items() if count)))
        verdict = self.ledger.judge(actor, sequence=self.taken[actor] + 1, generated=counts[actor] - 1, num_frames=0)
        assert verdict is Verdict.INCONSISTENT

    @rule(actor=actors)
    def hello(self, actor: tuple[int, int]) -> None:
        """The actor keeps everything that was not acknowledged, so nothing is skipped."""
        assert self.ledger.on_hello(actor, self.taken[actor] + 1) == self.taken[actor]

    @precondition(lambda self: self.waiting)
    @rule(is_stale=st.booleans())
    def leave_the_queue(self, is_stale: bool) -> None:
        frames = self.waiting.pop(0)
        if is_stale:
            self.ledger.drop(STALE, frames)
            self.dropped.update({(STALE, task): count for task, count in frames.items()})
        else:
            self.ledger.consume(frames)
            self.consumed.update(frames)

    @rule()
    def save(self) -> None:
        state = json.dumps(self.ledger.snapshot().as_json())
        self.checkpoint = (state, self.taken.copy(), self.consumed.copy(), self.dropped.copy(), self._in_flight())

    def _in_flight(self) -> Counter[int]:
        in_flight: Counter[int] = Counter()
        for frames in self.waiting:
            in_flight.update(frames)
        return in_flight

    @precondition(lambda self: self.checkpoint is not None)
    @rule(frames=num_frames)
    def restart(self, frames: dict[int, int]) -> None:
        """Return to the checkpoint. Every actor has kept only what was not acknowledged; it says hello and sends its next message."""
        assert self.checkpoint is not None
        state, taken_then, consumed, dropped, in_flight = self.checkpoint
        self.consumed, self.dropped = consumed.copy(), dropped.copy()
        self.dropped.update({(LEARNER_RESTART, task): count for task, count in in_flight.items()})
        self.waiting = []
        self.ledger = Ledger(LedgerSnapshot.from_json(json.loads(state)))
        for actor, messages in self.sent.items():
            taken = self.taken[actor]
            assert self.ledger.on_hello(actor, taken + 1) == taken
            self.dropped[LEARNER_RESTART, None] += self._sum(messages[taken_then[actor] : taken])
            self.next_message(actor, frames, None)
        self.checkpoint = None

    @invariant()
    def balances(self) -> None:
        snapshot = self.ledger.snapshot()
        assert snapshot.is_balanced
        assert snapshot.total.consumed == sum(self.consumed.values())
        in_flight = self._in_flight()
        assert snapshot.total.in_flight == sum(in_flight.values())
        booked = [(None, snapshot.unattributed), *((task, snapshot.task(task)) for task in range(3))]
        for task, frames in booked:
            dropped = Counter({reason: count for (reason, of), count in self.dropped.items() if of == task})
            consumed, waiting = (0, 0) if task is None else (self.consumed[task], in_flight[task])
            assert (frames.consumed, frames.in_flight, frames.dropped) == (consumed, waiting, dropped)
            assert frames.generated == consumed + waiting + sum(dropped.values())
        assert snapshot.total.generated == sum(self._sum(messages[: self.taken[actor]]) for actor, messages in self.sent.items())
        assert snapshot.total.generated == sum(generated for _, generated in snapshot.accounts.values())
        assert self.ledger.totals().as_json() == snapshot.report()

    @invariant()
    def survives_json(self) -> None:
        snapshot = self.ledger.snapshot()
        again = LedgerSnapshot.from_json(json.loads(json.dumps(snapshot.as_json())))
        assert again == snapshot
        assert list(again.accounts) == list(snapshot.accounts)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_is_balanced_detects_unbalanced_snapshots() -> None:
    total = Frames(10, 4, 3, Counter({STALE: 3}))
    assert LedgerSnapshot(total).is_balanced
    assert not LedgerSnapshot(Frames(10, 4, 3, Counter({STALE: 2}))).is_balanced
    assert LedgerSnapshot(total, {0: Frames(6, 3, 0, Counter({STALE: 3})), 1: Frames(4, 1, 3)}).is_balanced
    assert not LedgerSnapshot(total, {0: Frames(6, 3, 0, Counter({STALE: 2}))}).is_balanced
    assert not LedgerSnapshot(total, {0: Frames(5, 5, 0)}).is_balanced  # task 0 has consumed more than the total


def test_a_new_learner_starts_at_the_actors_oldest_sequence() -> None:
    ledger = Ledger()
    assert ledger.judge(ACTOR, sequence=9, generated=72, num_frames=8) is Verdict.OUT_OF_SEQUENCE
    assert ledger.on_hello(ACTOR, oldest_sequence=9) == 8
    assert ledger.snapshot() == LedgerSnapshot()  # a hello creates no account
    ledger.refuse(ACTOR, sequence=9, generated=72, num_frames=8, reason=MALFORMED)
    assert ledger.snapshot().total.dropped == {LEARNER_RESTART: 64, MALFORMED: 8}


def test_accounts_are_bounded_and_the_least_recent_is_evicted(monkeypatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_ACCOUNTS", 3)
    ledger = Ledger()
    for actor, sequence in (((0, 1), 1), ((1, 1), 1), ((2, 1), 1), ((0, 1), 2), ((3, 1), 1)):
        ledger.receive(actor, sequence=sequence, generated=sequence, frames={0: 1})
    assert list(ledger.snapshot().accounts) == [(2, 1), (0, 1), (3, 1)]


@pytest.mark.parametrize(("generated", "verdict"), [(8, Verdict.NEXT), (8 + 3 * 40, Verdict.NEXT), (9 + 3 * 40, Verdict.INCONSISTENT)])
def test_frames_of_skipped_messages_are_limited(generated: int, verdict: Verdict) -> None:
    ledger = Ledger()
    ledger.on_hello(ACTOR, oldest_sequence=4)
    assert ledger.judge(ACTOR, sequence=4, generated=generated, num_frames=8, most_frames=40) is verdict


def test_skipped_messages_are_saved_in_the_checkpoint() -> None:
    """The checkpoint comes between the hello that skipped messages and the next message: the next learner allows for the same frames."""
    ledger = Ledger()
    _take(ledger, 1, 8, 8)
    ledger.on_hello(ACTOR, oldest_sequence=5)
    restored = Ledger(LedgerSnapshot.from_json(json.loads(json.dumps(ledger.snapshot().as_json()))))
    assert restored.on_hello(ACTOR, oldest_sequence=5) == 4
    _take(restored, 5, 40, 8)
    assert restored.snapshot().total.dropped == {LEARNER_RESTART: 32}


@pytest.fixture
def _restless_threads() -> Iterator[None]:
    """Switch threads every few instructions, so that a missing lock shows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_restless_threads")
def test_every_snapshot_balances_while_two_threads_write() -> None:
    ledger = Ledger()
    taken = threading.Semaphore(0)

    def consume() -> None:
        for turn in range(2_000):
            taken.acquire()
            if turn % 3:
                ledger.consume({1: 3, 2: 1})
            else:
                ledger.drop(STALE, {1: 3, 2: 1})

    def receive() -> None:
        for sequence in range(1, 2_001):
            ledger.receive(ACTOR, sequence=sequence, generated=4 * sequence, frames={1: 3, 2: 1})
            taken.release()

    threads = [threading.Thread(target=receive), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    num_snapshots = 0
    while any(thread.is_alive() for thread in threads) or num_snapshots == 0:
        snapshot = ledger.snapshot()
        assert snapshot.is_balanced
        assert snapshot.total.in_flight == snapshot.task(1).in_flight + snapshot.task(2).in_flight >= 0
        num_snapshots += 1
    for thread in threads:
        thread.join()
    assert ledger.snapshot().report() == {"generated": 8_000, "consumed": 5_332, "dropped": {STALE: 2_668}, "in_flight": 0}
