"""The client against a learner that follows docs/messaging.md, over loopback. One thread drives both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest

from herd.contract.spaces import discrete
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.unrolls.arrays import receive_arrays
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.credit import CreditPool, Grant
from herd.protocols.unrolls.messages import (
    UNROLLS,
    Ack,
    Compression,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    Hello,
    HelloRequired,
    Rejected,
    Unrolls,
    Welcome,
)
from herd.rpc.codec import encode
from herd.rpc.envelope import Message, Refused
from herd.transport import Limits, Peer
from herd.transport.context import Context, Poller

LAYOUT = UnrollLayout(unroll_length=4, frame_stack=2, frame_shape=(84, 84, 1), actions=discrete(3), num_parameters=3)
E = 2  # unrolls per message
DEADLINE_SECONDS = 20.0


class Learner:
    """Follows the learner's rules, and does nothing else. ``last`` and ``accepted`` survive a restart, as with a checkpoint."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*", *, capacity: int = 2 * E) -> None:
        self.capacity = capacity
        self.last: dict[int, int] = {}
        self.accepted: list[int] = []
        """The values that ``marked`` wrote into the messages, in the order of acceptance."""
        self.episodes: list[EpisodeReport] = []
        self.generated_frames = 0
        self.reject: set[int] = set()
        self.refusal: str | None = None
        self.answers = True
        self.seen: list[str] = []
        self.start(endpoint)

    def start(self, endpoint: str) -> None:
        self.context = Context()
        self.router = self.context.server(endpoint, Limits(max_frame_bytes=LAYOUT.max_frame_bytes(E)))
        self.endpoint = self.router.endpoint
        self.poller = Poller(self.router)
        self.pool = CreditPool(self.capacity, expires_seconds=60.0)
        self.incarnations: dict[Peer, int] = {}

    def stop(self) -> None:
        """Die without reading what has arrived; returns when the port is free."""
        self.router.close()
        self.context.destroy(linger=0)

    def restart(self) -> None:
        self.stop()
        self.start(self.endpoint)

    def pump(self, timeout_seconds: float = 0.005) -> None:
        self.poller.poll(timeout_seconds)
        while (received := self.router.receive()) is not None:
            peer, frames = received
            message = UNROLLS.decode(frames[0])
            self.seen.append(message.type)
            if self.answers:
                self.handle(peer, message, frames)

    def send(self, peer: Peer, message: Message) -> None:
        assert self.router.send(peer, encode(message))

    def announce(self, grants: list[Grant]) -> None:
        for peer, granted in grants:
            self.send(peer, Credit(granted_unrolls=granted))

    def consume(self) -> None:
        """Take everything from the queue."""
        self.announce(self.pool.on_consumed(self.pool.held))

    def handle(self, peer: Peer, message: Message, frames: list[memoryview]) -> None:
        now = time.monotonic()
        match message:
            case Hello():
                if self.refusal is not None:
                    self.send(peer, Refused(id=message.id, reason=self.refusal))
                    return
                grants = self.pool.on_hello(peer, message.max_unrolls, now)
                self.incarnations[peer] = message.incarnation
                last = self.last[message.incarnation] = max(self.last.get(message.incarnation, 0), message.oldest_sequence - 1)
                self.send(peer, Welcome(id=message.id, accepted_sequence=last, granted_unrolls=0))
                self.announce(grants)
            case _ if peer not in self.incarnations:
                self.send(peer, HelloRequired(reason="unknown"))
            case CreditRequest():
                grants = self.pool.on_credit_request(peer, message.wanted_unrolls, now)
                self.announce([grant for grant in grants if grant.peer != peer])
                self.send(peer, Credit(granted_unrolls=self.pool.granted(peer)))
            case Goodbye():
                self.announce(self.pool.on_goodbye(peer))
            case Unrolls():
                self.take(peer, message, frames[1:])

    def take(self, peer: Peer, message: Unrolls, payload: list[memoryview]) -> None:
        incarnation = self.incarnations[peer]
        last = self.last[incarnation]
        if message.sequence > last + 1 or not self.pool.on_message_received(peer, message.num_unrolls, time.monotonic()):
            self.send(peer, HelloRequired(reason="out of sequence or beyond credit"))
            return
        granted = self.pool.granted(peer)
        if message.sequence <= last:
            self.announce(self.pool.on_consumed(message.num_unrolls))
            self.send(peer, Ack(sequence=last, granted_unrolls=granted))
            return
        self.last[incarnation] = message.sequence
        if message.sequence in self.reject:
            self.announce(self.pool.on_consumed(message.num_unrolls))
            self.send(peer, Rejected(sequence=message.sequence, reason="unlucky", granted_unrolls=granted))
            return
        out = receive_arrays(payload, message.num_unrolls, LAYOUT, message.compression)
        value = int(out["episode_id"][0])
        assert np.all(out["frames"] == value % 256)
        assert np.all(out["episode_id"] == value)
        self.accepted.append(value)
        self.episodes += message.episodes
        self.generated_frames = message.generated_frames
        self.send(peer, Ack(sequence=message.sequence, granted_unrolls=granted))


@pytest.fixture
def learner() -> Iterator[Learner]:
    made = Learner()
    yield made
    made.stop()


def connect(
    context: Context,
    endpoint: str,
    *,
    index: int = 0,
    compression: Compression = "none",
    clock: Callable[[], float] = time.monotonic,
) -> UnrollClient:
    return UnrollClient(
        context,
        endpoint,
        layout=LAYOUT,
        run_id="run",
        contract="contract",
        actor_index=index,
        max_unrolls=E,
        compression=compression,
        clock=clock,
        random=Random(0),
    )


def marked(value: int) -> dict[str, Array]:
    """Arrays with the number of their message in every frame."""
    arrays = LAYOUT.allocate(E)
    arrays["frames"][...] = value % 256
    arrays["episode_id"][...] = value
    return arrays


def until(condition: Callable[[], bool], learner: Learner, *clients: UnrollClient) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened; the learner saw {learner.seen[-20:]}"
        for client in clients:
            client.poll()
        learner.pump()
        for client in clients:
            client.poll(0.001)


def send(value: int, client: UnrollClient, learner: Learner) -> int:
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    return client.send_unrolls(marked(value), num_frames=10)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_unrolls_arrive_with_their_reports_and_are_acknowledged(learner: Learner, context: Context, compression: Compression) -> None:
    client = connect(context, learner.endpoint, compression=compression)
    episode = EpisodeReport(task_id=0, environment_slot=1, episode_id=2, episode_return=3.0, agent_steps=4)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    assert client.send_unrolls(marked(7), num_frames=32, episodes=[episode]) == 1
    assert (client.num_unacked, client.acked_sequence) == (1, 0)
    until(lambda: client.num_unacked == 0, learner, client)
    assert client.acked_sequence == 1
    assert learner.accepted == [7]
    assert learner.episodes == [episode]
    assert learner.generated_frames == client.generated_frames == 32
    assert client.bytes_out == learner.router.bytes_in
    client.close()


def test_unrolls_in_flight_are_bounded_by_credit(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    assert not client.has_credit(E)
    for value in (1, 2):
        send(value, client, learner)
    client.request_credit(E)
    until(lambda: client.num_unacked == 0 and learner.pool.num_waiting == 1, learner, client)
    assert not client.wait_for_credit(E, 0.01)
    assert client.blocked_seconds >= 0.01
    with pytest.raises(RuntimeError, match="no credit for 2 unrolls"):
        client.send_unrolls(marked(3), num_frames=1)
    learner.consume()
    assert client.wait_for_credit(E, DEADLINE_SECONDS)
    client.close()


def test_a_restarted_learner_gets_every_message_once(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    value = 0
    for num_unread in (0, 1, 2):  # messages that the dying learner had received but not read
        for _ in range(3):
            learner.consume()
            send(value, client, learner)
            value += 1
        until(lambda: client.num_unacked == 0, learner, client)
        learner.consume()
        client.request_credit(E)
        until(lambda: client.has_credit(E), learner, client)
        for _ in range(min(num_unread, 1)):
            client.send_unrolls(marked(value), num_frames=1)
            value += 1
        if num_unread == 2:  # the message was taken, but the acknowledgement is lost with the learner
            until(lambda value=value: learner.accepted[-1:] == [value - 1], learner)  # type: ignore[misc]
        learner.restart()
        until(lambda: client.num_unacked == 0, learner, client)
    assert learner.accepted == list(range(value))
    assert client.num_sessions >= 3
    client.close()


def test_a_learner_restored_from_an_old_checkpoint_is_followed(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    for value in range(3):
        send(value, client, learner)
        until(lambda: client.num_unacked == 0, learner, client)
        learner.consume()
    learner.last[client.incarnation] = 1  # messages 2 and 3 were acknowledged after the checkpoint, so they cannot be sent again
    learner.restart()
    send(3, client, learner)
    until(lambda: client.num_unacked == 0, learner, client)
    assert learner.accepted == [0, 1, 2, 3]
    assert learner.last[client.incarnation] == 4
    client.close()


def test_a_learner_at_another_address_gets_unacknowledged_messages(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    send(5, client, learner)
    successor = Learner()
    client.restart_connection(successor.endpoint)
    until(lambda: client.num_unacked == 0, successor, client)
    assert successor.accepted == [5]
    client.close()
    successor.stop()


def greet(client: UnrollClient, learner: Learner, now: list[float]) -> None:
    """Advance the clock until the first hello has been sent; without a connection it is retried every 10 ms."""
    while "hello" not in learner.seen:
        now[0] += 0.001
        client.poll()
        learner.pump()


def test_an_expired_session_is_reopened_without_loss(learner: Learner, context: Context) -> None:
    now = [0.0]
    client = connect(context, learner.endpoint, clock=lambda: now[0])
    greet(client, learner, now)  # from here on the clock stands still, so no timeout can help
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    learner.pool.expire(time.monotonic() + 61.0)  # the client has been silent for too long
    now[0] += 0.2
    client.send_unrolls(marked(1), num_frames=1)
    until(lambda: client.num_unacked == 0, learner, client)
    assert learner.accepted == [1]
    assert client.num_sessions == 2
    client.close()


def waiting(learner: Learner, context: Context, now: list[float]) -> UnrollClient:
    """Return a client that waits for credit, all of which is held. The clock stands still, so no timeout can help."""
    client = connect(context, learner.endpoint, clock=lambda: now[0])
    greet(client, learner, now)
    for value in range(2):
        send(value, client, learner)
    until(lambda: client.num_unacked == 0, learner, client)
    client.request_credit(E)
    until(lambda: learner.pool.num_waiting == 1, learner, client)
    return client


def test_a_waiting_actor_notices_a_restarted_learner_by_its_new_connection(learner: Learner, context: Context) -> None:
    now = [0.0]
    client = waiting(learner, context, now)
    now[0] += 0.2  # the shortest interval of hellos
    learner.restart()
    until(lambda: client.has_credit(E), learner, client)
    assert client.num_sessions == 2
    client.close()


def test_a_waiting_actor_repeats_its_request_every_five_seconds(learner: Learner, context: Context) -> None:
    now = [0.0]
    client = waiting(learner, context, now)
    until(lambda: client.socket.num_connections == 1, learner, client)

    def requests_after(seconds: float) -> int:
        now[0] += seconds
        before = len(learner.seen)
        for _ in range(20):
            client.poll(0.001)
            learner.pump()
        return learner.seen[before:].count("credit_request")

    requests_after(0.0)  # perhaps one more, because the connection was new
    assert [requests_after(seconds) for seconds in (4.9, 0.2, 4.9, 0.2)] == [0, 1, 0, 1]
    client.close()


def test_repeated_hello_required_answers_do_not_cause_a_loop(learner: Learner, context: Context) -> None:
    now = [0.0]
    client = connect(context, learner.endpoint, clock=lambda: now[0])
    greet(client, learner, now)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    peer = next(iter(learner.incarnations))
    learner.send(peer, HelloRequired(reason="so soon"))
    until(lambda: not client.connected, learner, client)
    for _ in range(5):
        client.poll()
        learner.pump()
    assert learner.seen.count("hello") == 1
    now[0] += 1.6  # the longest first delay is 1.5 s
    until(lambda: client.connected, learner, client)
    assert learner.seen.count("hello") == 2
    client.close()


def test_hello_is_sent_again_to_a_silent_learner(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    send(1, client, learner)
    learner.answers = False
    until(lambda: learner.seen[-1] == "hello", learner, client)
    learner.answers = True
    until(lambda: client.num_unacked == 0, learner, client)
    assert learner.accepted == [1]
    client.close()


def test_a_rejected_message_is_not_sent_again(learner: Learner, context: Context) -> None:
    learner.reject = {1}
    client = connect(context, learner.endpoint)
    for value in (1, 2):
        send(value, client, learner)
    until(lambda: client.num_unacked == 0, learner, client)
    assert learner.accepted == [2]
    assert client.num_rejected == 1
    assert learner.seen.count("unrolls") == 2
    client.close()


def test_a_refusal_is_reported_until_a_learner_accepts(learner: Learner, context: Context) -> None:
    learner.refusal = "another contract"
    client = connect(context, learner.endpoint)
    until(lambda: client.refused is not None, learner, client)
    assert client.refused == "another contract"
    assert not client.connect(0.0)
    learner.refusal = None
    until(lambda: client.connected, learner, client)
    assert client.refused is None
    client.close()


def test_a_goodbye_ends_the_run_or_returns_the_credit(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    assert learner.pool.granted_unused == E
    assert not client.run_is_over
    (peer,) = learner.incarnations
    learner.send(peer, Goodbye())
    until(lambda: client.run_is_over, learner, client)
    client.close()
    until(lambda: learner.pool.granted_unused == 0, learner)
    assert learner.seen[-1] == "goodbye"


def test_without_a_learner_nothing_blocks(context: Context) -> None:
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1)) as router:
        endpoint = router.endpoint
    client = connect(context, endpoint)
    start = time.monotonic()
    client.poll()
    client.request_credit(E)
    assert not client.connect(0.05)
    assert not client.wait_for_credit(E, 0.05)
    client.close()
    assert time.monotonic() - start < 5.0


def test_arrays_that_do_not_match_the_layout_are_not_sent(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    missing = marked(1)
    del missing["rewards"]
    uneven = {**marked(1), "rewards": np.zeros((E + 1, 4), np.float32)}
    wide = {**marked(1), "rewards": np.zeros((E, 4), np.float64)}
    for arrays in (missing, uneven, wide, LAYOUT.allocate(E + 1), LAYOUT.allocate(0)):
        with pytest.raises(ValueError, match="array"):
            client.send_unrolls(arrays, num_frames=1)
    assert client.num_unacked == client.generated_frames == 0
    client.close()
