from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from herd.protocols.unrolls.credit import CreditPool, Grant
from herd.protocols.unrolls.messages import Ack, Credit, CreditRequest, Hello, HelloRequired, Rejected, Unrolls, Welcome
from herd.protocols.unrolls.outbox import UnrollOutbox
from herd.rpc.envelope import Message
from herd.transport import Peer


def open_outbox(granted: int = 0) -> UnrollOutbox[str]:
    outbox: UnrollOutbox[str] = UnrollOutbox()
    outbox.begin_hello(1)
    assert outbox.on_welcome(Welcome(id=1, accepted_sequence=0, granted_unrolls=granted))
    return outbox


def send_all(outbox: UnrollOutbox[str]) -> list[str]:
    sent = []
    while (message := outbox.next_to_send()) is not None:
        outbox.mark_sent()
        sent.append(message.payload)
    return sent


def test_nothing_is_sent_without_session_or_credit() -> None:
    outbox: UnrollOutbox[str] = UnrollOutbox()
    outbox.put(2, "one")
    assert outbox.next_to_send() is None
    outbox.begin_hello(1)
    assert outbox.next_to_send() is None
    outbox.on_credit(Credit(granted_unrolls=10))  # from a session that has ended
    assert outbox.on_welcome(Welcome(id=1, accepted_sequence=0, granted_unrolls=1))
    assert outbox.next_to_send() is None
    assert outbox.wanted_unrolls(5) == 2
    outbox.on_credit(Credit(granted_unrolls=2))
    assert send_all(outbox) == ["one"]
    assert not outbox.can_send(1)


def test_only_the_welcome_to_the_newest_hello_is_accepted() -> None:
    outbox: UnrollOutbox[str] = UnrollOutbox()
    outbox.begin_hello(1)
    outbox.begin_hello(2)
    assert not outbox.on_welcome(Welcome(id=1, accepted_sequence=0, granted_unrolls=9))
    assert not outbox.welcomed
    assert outbox.on_welcome(Welcome(id=2, accepted_sequence=0, granted_unrolls=0))
    assert not outbox.on_welcome(Welcome(id=2, accepted_sequence=0, granted_unrolls=9))
    assert not outbox.can_send(1)


def test_a_new_session_resends_unaccepted_messages_under_credit() -> None:
    outbox = open_outbox(granted=6)
    for payload in ("one", "two", "three"):
        outbox.put(2, payload)
    assert send_all(outbox) == ["one", "two", "three"]
    outbox.begin_hello(2)
    assert outbox.on_welcome(Welcome(id=2, accepted_sequence=1, granted_unrolls=2))
    assert outbox.oldest_sequence == 2
    assert outbox.acked_sequence == 1
    assert send_all(outbox) == ["two"]
    assert outbox.wanted_unrolls(7) == 4
    outbox.on_ack(Ack(sequence=2, granted_unrolls=6))
    assert not outbox.can_send(2)  # an earlier message waits
    assert send_all(outbox) == ["three"]
    assert outbox.num_unacked == outbox.num_unanswered == 1
    outbox.on_rejected(Rejected(sequence=3, reason="no", granted_unrolls=6))
    assert (outbox.acked_sequence, outbox.num_unacked, outbox.oldest_sequence) == (3, 0, 4)
    assert outbox.can_send(2)
    assert not outbox.can_send(3)


CAPACITY = 6
EXPIRES = 10.0
PEER = Peer(b"actor")
OTHER = Peer(b"other")


class LinkMachine(RuleBasedStateMachine):
    """One actor, one learner, and a link that breaks: messages in flight are lost, independently in each direction.

    The learner follows docs/messaging.md; another actor competes for credit. The learner may restart with its deduplication map, or with
    an
    older one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outbox: UnrollOutbox[Unrolls] = UnrollOutbox()
        self.up: deque[Message] = deque()
        self.down: deque[Message] = deque()
        self.request_id = 0
        self.now = 0.0
        self.pool = CreditPool(CAPACITY, expires_seconds=EXPIRES)
        self.last = 0
        self.accepted: list[int] = []
        self.checkpoint: tuple[int, list[int]] = (0, [])
        self.went_back = False
        self.ever_accepted: set[int] = set()
        self.say_hello()

    # -- the actor
    def say_hello(self) -> None:
        self.request_id += 1
        self.outbox.begin_hello(self.request_id)
        hello = Hello(
            id=self.request_id,
            run="run",
            agent=0,
            contract="contract",
            actor_index=0,
            incarnation=1,
            max_unrolls=3,
            oldest_sequence=self.outbox.oldest_sequence,
        )
        self.up.append(hello)

    def flush(self) -> None:
        while (message := self.outbox.next_to_send()) is not None:
            self.up.append(message.payload)
            self.outbox.mark_sent()

    @rule(num_unrolls=st.integers(1, 3))
    def actor_asks(self, num_unrolls: int) -> None:
        if self.outbox.welcomed:
            self.up.append(CreditRequest(wanted_unrolls=self.outbox.wanted_unrolls(num_unrolls)))

    @rule(num_unrolls=st.integers(1, 3))
    def actor_finishes_unrolls(self, num_unrolls: int) -> None:
        if self.outbox.can_send(num_unrolls):
            sequence = self.outbox.last_sequence + 1
            header = Unrolls(sequence=sequence, generated_frames=sequence, num_frames=1, num_unrolls=num_unrolls)
            self.outbox.put(num_unrolls, header)
            self.flush()

    @rule()
    def actor_is_impatient(self) -> None:
        self.say_hello()

    @precondition(lambda self: self.down)
    @rule()
    def actor_reads(self) -> None:
        match self.down.popleft():
            case Welcome() as welcome:
                self.outbox.on_welcome(welcome)
            case Ack() as ack:
                self.outbox.on_ack(ack)
            case Credit() as credit:
                self.outbox.on_credit(credit)
            case HelloRequired() if self.outbox.welcomed:
                self.say_hello()
        self.flush()

    # -- the learner
    def answer(self, grants: list[Grant]) -> None:
        self.down.extend(Credit(granted_unrolls=granted) for peer, granted in grants if peer == PEER)

    @precondition(lambda self: self.up)
    @rule()
    def learner_reads(self) -> None:
        match self.up.popleft():
            case Hello() as hello:
                grants = self.pool.on_hello(PEER, hello.max_unrolls, self.now)
                self.last = max(self.last, hello.oldest_sequence - 1)
                self.down.append(Welcome(id=hello.id, accepted_sequence=self.last, granted_unrolls=0))
                self.answer(grants)
            case CreditRequest() as request:
                grants = self.pool.on_credit_request(PEER, request.wanted_unrolls, self.now)
                if not self.pool.knows(PEER):
                    self.down.append(HelloRequired(reason="unknown"))
                else:
                    self.down.append(Credit(granted_unrolls=self.pool.granted(PEER)))
            case Unrolls() as message:
                self.learner_reads_unrolls(message)

    def learner_reads_unrolls(self, message: Unrolls) -> None:
        if message.sequence > self.last + 1 or not self.pool.on_message_received(PEER, message.num_unrolls, self.now):
            self.down.append(HelloRequired(reason="out of sequence or beyond credit"))
            return
        if message.sequence == self.last + 1:
            self.last += 1
            self.accepted.append(message.sequence)
            self.ever_accepted.add(message.sequence)
        else:
            self.answer(self.pool.on_consumed(message.num_unrolls))
        self.down.append(Ack(sequence=message.sequence, granted_unrolls=self.pool.granted(PEER)))

    @precondition(lambda self: self.pool.held > 0)
    @rule()
    def learner_consumes(self) -> None:
        self.answer(self.pool.on_consumed(1))

    @rule(more=st.integers(0, 3))
    def another_actor_competes(self, more: int) -> None:
        if not self.pool.knows(OTHER):
            self.answer(self.pool.on_hello(OTHER, 3, self.now))
        granted = self.pool.granted(OTHER)
        self.answer(self.pool.on_credit_request(OTHER, granted + more, self.now))
        if self.pool.on_message_received(OTHER, 1, self.now):
            self.answer(self.pool.on_consumed(1))

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.answer(self.pool.expire(self.now))

    # -- faults
    @rule(up=st.integers(0, 3), down=st.integers(0, 3))
    def link_breaks(self, up: int, down: int) -> None:
        """Only the first ``up`` and ``down`` messages in flight arrive; later ones use a new connection."""
        self.up = deque(list(self.up)[:up])
        self.down = deque(list(self.down)[:down])

    @rule()
    def learner_writes_checkpoint(self) -> None:
        self.checkpoint = (self.last, list(self.accepted))

    @rule()
    def learner_restarts_where_it_was(self) -> None:
        self.link_breaks(0, 0)
        self.pool = CreditPool(CAPACITY, expires_seconds=EXPIRES)

    @rule()
    def learner_goes_back_to_its_checkpoint(self) -> None:
        self.learner_restarts_where_it_was()
        self.went_back |= len(self.checkpoint[1]) < len(self.accepted)
        self.last, self.accepted = self.checkpoint[0], list(self.checkpoint[1])

    # -- promises
    @invariant()
    def accepted_once_and_in_order(self) -> None:
        assert self.accepted == sorted(set(self.accepted))
        if not self.went_back:
            assert self.accepted == list(range(1, len(self.accepted) + 1))

    @invariant()
    def acknowledged_means_accepted(self) -> None:
        assert set(range(1, self.outbox.acked_sequence + 1)) <= self.ever_accepted

    @invariant()
    def what_is_kept_is_bounded_by_credit(self) -> None:
        assert self.outbox.num_unacked <= CAPACITY + 3

    def teardown(self) -> None:
        """Without further faults, everything that was put must arrive."""
        self.pool.on_goodbye(OTHER)
        self.say_hello()
        for _ in range(1000):
            if self.outbox.num_unacked == 0:
                break
            self.flush()
            self.actor_asks(1)
            while self.up:
                self.learner_reads()
            while self.pool.held:
                self.learner_consumes()
            while self.down:
                self.actor_reads()
        assert self.outbox.num_unacked == 0
        self.accepted_once_and_in_order()
        assert self.ever_accepted == set(range(1, self.outbox.last_sequence + 1))
        if not self.went_back:
            assert self.accepted == list(range(1, self.outbox.last_sequence + 1))


TestLink = LinkMachine.TestCase
TestLink.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
