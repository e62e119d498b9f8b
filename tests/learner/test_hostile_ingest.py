"""What a hostile client can do to the learner: a refused message changes nothing, memory is bounded, honest unrolls arrive once."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from herd_learner.intake import ingest as ingest_module
from herd_learner.intake import ledger as ledger_module
from herd_learner.intake.ingest import TAKEOVER_SECONDS, Reply
from herd_learner.intake.ledger import frames_by_task
from herd_learner.record.statistics import RunStatistics
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from herd.contract.spaces import EnvSpec, discrete
from herd.contract.unroll import LARGEST_RETURN
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.messages import Ack, CreditRequest, EpisodeReport, Goodbye, HelloRequired, Rejected, Welcome
from herd.protocols.unrolls.metrics import MALFORMED
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Refused
from herd.transport import Frame, Peer
from tests.learner.ingest_learner import CAPACITY, MAX_SESSIONS, OTHER, PEER, Learner, hello_of
from tests.learner.small_unrolls import FRAMES_PER_UNROLL, LAYOUT, small_arrays, unrolls_message
from tests.wire.hostile_bytes import mutated_frames

STRANGER = Peer(b"actor/66/6")


@pytest.fixture
def learner() -> Learner:
    """A learner with one honest actor in a session, with credit for four unrolls."""
    learner = Learner()
    learner.hello()
    learner.grant(4)
    return learner


EPISODE = EpisodeReport(task_id=0, environment_slot=0, episode_id=0, episode_return=1.0, agent_steps=1)


def test_the_largest_returns_do_not_overflow() -> None:
    spec = EnvSpec(frame_shape=(2, 2, 1), frame_stack=2, actions=discrete(2), instruction_length=0, task_names=("a",), action_repeat=4)
    statistics = RunStatistics(spec)
    for _ in range(1000):
        statistics.record_episode(0, LARGEST_RETURN)
    assert statistics.mean_return == LARGEST_RETURN


def _fail_once(monkeypatch: pytest.MonkeyPatch, target: object, name: str) -> None:
    """Let the next call of ``target.name`` fail, as an error of this program would."""
    call, failures = getattr(target, name), [ZeroDivisionError("planted")]

    def failing(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return call(*arguments, **named)

    monkeypatch.setattr(target, name, failing)


@pytest.mark.parametrize("step", ["receive_arrays", "inverse_temperatures_of", "frames_by_task"])
def test_an_error_of_this_program_drops_one_message_of_unrolls(
    learner: Learner, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, step: str
) -> None:
    _fail_once(monkeypatch, ingest_module, step)
    episodes = (EPISODE,)
    (reply,) = learner.receive(unrolls_message(1, generated=8, episodes=episodes))
    assert isinstance(reply.message, Rejected)
    assert "see the error in the learner's log" in reply.message.reason
    assert "planted" in log.getvalue()
    assert (len(learner.queue), learner.credit.held, learner.ledger.snapshot().total.dropped) == (0, 0, {MALFORMED: 8})
    # The next one is learned from, with its game.
    learner.grant(4)
    (reply,) = learner.receive(unrolls_message(2, generated=16, episodes=episodes))
    assert isinstance(reply.message, Ack)
    assert (len(learner.queue), learner.episodes) == (1, list(episodes))


def test_an_error_of_this_program_refuses_any_other_message(learner: Learner, monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> None:
    before = learner.state()
    _fail_once(monkeypatch, learner.credit, "place_for")
    (reply,) = learner.hello(OTHER)
    assert isinstance(reply.message, Refused)
    assert reply.message.id == hello_of(OTHER).id
    assert "see the error in the learner's log" in reply.message.reason
    assert (learner.refused, learner.state()) == (Counter({"other": 1}), before)
    assert "planted" in log.getvalue()
    assert isinstance(learner.hello(OTHER)[0].message, Welcome)


# -- growing tables


def test_a_connection_cannot_speak_for_another_actor(learner: Learner) -> None:
    before = learner.state()
    for index in range(60):
        with pytest.raises(MalformedMessage, match="name of another actor"):
            learner.hello(STRANGER, actor_index=index)
    with pytest.raises(MalformedMessage, match="name of another actor"):
        learner.hello(STRANGER, actor_index=0, incarnation=7, oldest_sequence=2**63 - 1)
    assert learner.state() == before
    assert learner.num_entries() == 1


def test_invented_actors_displace_only_actors_without_unrolls(learner: Learner) -> None:
    learner.receive(unrolls_message(1, generated=8))
    for number in range(1000):
        assert isinstance(learner.hello(Peer(b"actor/%d/1" % (number + 1)))[0].message, Welcome)
        assert learner.num_entries() <= MAX_SESSIONS
    assert learner.receive(unrolls_message(2, generated=16))[0].message == Ack(sequence=2, granted_unrolls=4)
    # The newest actors are kept. An actor that was displaced is told, and may try again.
    (reply,) = learner.grant(1, Peer(b"actor/3/1"))
    assert isinstance(reply.message, HelloRequired)


def test_a_new_actor_is_refused_when_all_sessions_are_active() -> None:
    learner = Learner()
    for index in range(MAX_SESSIONS):
        peer = Peer(b"actor/%d/1" % index)
        learner.hello(peer)
        learner.grant(1, peer)
        learner.receive(unrolls_message(1, generated=8), peer)
    assert isinstance(learner.hello(STRANGER)[0].message, Refused)
    assert learner.refused == {"full": 1}
    learner.receive(encode(Goodbye()), Peer(b"actor/0/1"))
    assert isinstance(learner.hello(STRANGER)[0].message, Welcome)


def test_invented_actors_do_not_evict_accounts_of_active_actors(learner: Learner, monkeypatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_ACCOUNTS", 8)
    learner.receive(unrolls_message(1, generated=8))
    for number in range(100):
        peer = Peer(b"actor/%d/1" % (number + 1))
        learner.hello(peer)
        learner.grant(1, peer)
        learner.receive(unrolls_message(1, generated=8, arrays={}), peer)  # the message is dropped, and the actor gets an account
        learner.receive(encode(Goodbye()), peer)
    assert learner.ledger.snapshot().total.dropped == {MALFORMED: 800}
    assert len(learner.ledger.snapshot().accounts) == 8
    assert learner.receive(unrolls_message(1, generated=8))[0].message == Ack(sequence=1, granted_unrolls=4)
    assert learner.refused["duplicate"] == 1


VALID: list[list[bytes]] = [
    [bytes(frame) for frame in frames]
    for frames in (
        unrolls_message(1, generated=8),
        unrolls_message(2, generated=16),
        unrolls_message(1, generated=16, num_unrolls=2, episodes=(EPISODE,)),
        encode(CreditRequest(wanted_unrolls=9)),
        encode(Goodbye()),
        encode(hello_of(PEER)),
        encode(hello_of(OTHER, oldest_sequence=2**63 - 1)),
        encode(Ack(sequence=1, granted_unrolls=4)),
    )
]


# -- an attacker among honest actors


MARKS_OF_STRANGERS = 10**12


class Wire:
    """Stands in for a DEALER and its connection. Both directions are first-in-first-out; a break loses the newest messages in flight."""

    num_connections = 1

    def __init__(self, wires: dict[Peer, Wire], name: str) -> None:
        self.to_learner: deque[list[bytes]] = deque()
        self.to_actor: deque[list[bytes]] = deque()
        wires[Peer(name.encode())] = self

    def send(self, frames: Sequence[Frame]) -> bool:
        self.to_learner.append([bytes(frame) for frame in frames])
        return True

    def receive(self) -> list[bytes] | None:
        return self.to_actor.popleft() if self.to_actor else None

    def lose(self, queue: deque[list[bytes]], num_kept: int) -> None:
        while len(queue) > num_kept:
            queue.pop()


class Actor:
    """One incarnation of an actor and everything that it has sent."""

    def __init__(self, index: int, incarnation: int, wires: dict[Peer, Wire], clock: Any) -> None:
        self.key = (index, incarnation)
        self.client = UnrollClient(
            SimpleNamespace(client=lambda _address, name, _limits: Wire(wires, name)),  # type: ignore[arg-type]
            "tcp://learner",
            layout=LAYOUT,
            run_id="run",
            contract="c",
            actor_index=index,
            max_unrolls=3,
            incarnation=incarnation,
            clock=clock,
            random=Random(incarnation),
        )
        self.marks: list[int] = []

    def play(self, num_unrolls: int) -> None:
        """Send a message if there is credit, otherwise ask for credit."""
        self.client.request_credit(num_unrolls)
        self.client.poll()
        if self.client.has_credit(num_unrolls):
            first = self.key[1] * 10**6 + len(self.marks)
            marks = list(range(first, first + num_unrolls))
            self.marks += marks
            self.client.send_unrolls(small_arrays(num_unrolls, marks=marks), num_frames=num_unrolls * FRAMES_PER_UNROLL)


class Attacked(RuleBasedStateMachine):
    """Honest clients, an unreliable network, and an attacker that may send anything under any name that is not taken."""

    NUM_ACTORS = 2

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.wires: dict[Peer, Wire] = {}
        self.actors = [Actor(index, index + 1, self.wires, lambda: self.now) for index in range(self.NUM_ACTORS)]
        self.learner = Learner()
        self.consumed: list[int] = []
        self.num_frames = 0
        self.overheard: list[list[bytes]] = [list(frames) for frames in VALID]

    # A single rule draws the event: with several rules, Hypothesis would leave most of them out of any one run.
    @rule(
        event=st.sampled_from(["play", "play", "train", "wait", "break", "attack", "attack", "attack", "join"]),
        data=st.data(),
    )
    def happens(self, event: str, data: st.DataObject) -> None:
        getattr(self, f"_{event}")(data.draw)

    def _play(self, draw: Any) -> None:
        for actor in self.actors:
            actor.play(draw(st.integers(1, 3)))
        self._deliver()

    def _deliver(self) -> None:
        for peer in list(self.wires):
            while self.wires[peer].to_learner:
                frames = self.wires[peer].to_learner.popleft()
                self.overheard.append(frames)
                self._reply(self.learner.receive(frames, peer, self.now))
        for actor in self.actors:
            actor.client.poll()

    def _reply(self, replies: list[Reply]) -> None:
        for reply in replies:
            wire = self.wires.get(reply.peer)
            if wire is not None:
                wire.to_actor.append([bytes(frame) for frame in encode(reply.message)])

    def _train(self, draw: Any) -> None:
        unrolls, _ = self.learner.queue.take(draw(st.integers(1, 4)), lambda _: False, 0)
        self._consume(unrolls)

    def _consume(self, unrolls: list[Any]) -> None:
        self.consumed += [int(unroll.arrays["episode_id"][unroll.row]) for unroll in unrolls]
        self.num_frames += sum(unroll.num_frames for unroll in unrolls)
        self.learner.ledger.consume(frames_by_task(unrolls))
        self._reply(self.learner.ingest.on_consumed(len(unrolls)))

    def _wait(self, draw: Any) -> None:
        self._pass(draw(st.sampled_from([0.3, 2.0, TAKEOVER_SECONDS, 40.0])))

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        for actor in self.actors:
            actor.client.poll()
        self._reply(self.learner.ingest.expire(self.now))

    def _break(self, draw: Any) -> None:
        wire = self.wires[draw(st.sampled_from(sorted(self.wires)))]
        for queue in (wire.to_learner, wire.to_actor):
            wire.lose(queue, draw(st.integers(0, len(queue))))

    def _stranger(self, draw: Any) -> Peer:
        """Any actor's name that is not taken: libzmq does not give the identity of an open connection to another client."""
        return Peer(b"actor/%d/%x" % (draw(st.integers(0, 3)), draw(st.integers(10, 13))))

    def _attack(self, draw: Any) -> None:
        """Send anything: noise, or recorded messages, changed or not."""
        frames = draw(mutated_frames(self.overheard))
        self._hostile(self._stranger(draw), frames)

    def _join(self, draw: Any) -> None:
        """Send valid messages: hello under any index and incarnation, credit requests, and unrolls."""
        peer = self._stranger(draw)
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["hello", "ask", "unrolls", "goodbye"]))
            if kind == "hello":
                most, oldest = draw(st.integers(1, CAPACITY + 1)), draw(st.sampled_from([1, 2, 2**63 - 1]))
                self._hostile(peer, encode(hello_of(peer, max_unrolls=most, oldest_sequence=oldest)))
            elif kind == "ask":
                self._hostile(peer, encode(CreditRequest(wanted_unrolls=draw(st.integers(0, 2**63 - 1)))))
            elif kind == "unrolls":
                size = draw(st.integers(1, 3))
                arrays = small_arrays(size, marks=[MARKS_OF_STRANGERS] * size)
                generated = draw(st.sampled_from([size * FRAMES_PER_UNROLL, 100, 2**63 - 1]))
                message = unrolls_message(draw(st.integers(1, 3)), generated=generated, num_unrolls=size, arrays=arrays)
                self._hostile(peer, message)
            else:
                self._hostile(peer, encode(Goodbye()))

    def _hostile(self, peer: Peer, frames: list[Frame]) -> None:
        before = self.learner.state()
        try:
            self._reply(self.learner.receive(frames, peer, self.now))
        except MalformedMessage:
            assert self.learner.state() == before

    @invariant()
    def everything_is_in_one_account(self) -> None:
        if not hasattr(self, "learner"):
            return
        snapshot = self.learner.ledger.snapshot()
        assert snapshot.is_balanced
        assert snapshot.total.consumed == self.num_frames
        assert self.learner.num_entries() <= MAX_SESSIONS
        for actor in self.actors:
            mine = self._marks_of(actor)
            assert mine == actor.marks[: len(mine)]

    def _marks_of(self, actor: Actor) -> list[int]:
        return [mark for mark in self.consumed if mark // 10**6 == actor.key[1]]

    def teardown(self) -> None:
        """The attacker stops: everything that honest actors have sent arrives, once and in order."""
        if not hasattr(self, "learner"):
            return
        for _ in range(80):
            self._deliver()
            self._pass(1.0)
            self._deliver()
            self._consume(self.learner.queue.take(1, lambda _: False, 0)[0])
            self.everything_is_in_one_account()
        while len(self.learner.queue):
            self._consume(self.learner.queue.take(1, lambda _: False, 0)[0])
        accounts = self.learner.ledger.snapshot().accounts
        for actor in self.actors:
            assert actor.client.num_unacked == 0
            assert self._marks_of(actor) == actor.marks
            assert accounts.get(actor.key, (0, 0))[1] == actor.client.generated_frames


Attacked.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # Shrinking a failure of that many steps would exceed the time-out of a test.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestAttacked = Attacked.TestCase
