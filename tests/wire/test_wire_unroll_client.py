"""The client against the learner's own ingest, over loopback. One thread drives both. What restarts and lost messages do to the stream is
tested without sockets (tests/simulation)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest
from herd_learner.intake.ingest import Ingest, Reply
from herd_learner.intake.ledger import Ledger, LedgerSnapshot, frames_by_task
from herd_learner.intake.queue import UnrollQueue

from herd.contract.spaces import discrete
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import UNROLLS, Compression, EpisodeReport, Goodbye, HelloRequired
from herd.rpc.codec import encode
from herd.rpc.serving import ServedRun
from herd.transport import Limits, Peer
from herd.transport.context import Context, Poller

LAYOUT = UnrollLayout(unroll_length=4, frame_stack=2, frame_shape=(84, 84, 1), actions=discrete(3), num_parameters=3)
E = 2  # unrolls per message
FRAMES = E * LAYOUT.unroll_length
DEADLINE_SECONDS = 20.0


class Learner:
    """An ingest with its socket. The ledger survives a restart, as with a checkpoint."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        """The values that ``marked`` wrote into the messages, in the order of consumption."""
        self.episodes: list[EpisodeReport] = []
        self.seen: list[str] = []
        self.ledger = Ledger()
        self.bind("tcp://127.0.0.1:*")
        self.serve("contract")

    def bind(self, endpoint: str) -> None:
        self.context = Context()
        self.router = self.context.server(endpoint, Limits(max_frame_bytes=LAYOUT.max_frame_bytes(E)))
        self.endpoint = self.router.endpoint
        self.poller = Poller(self.router)

    def serve(self, contract: str) -> None:
        """Begin without sessions and with an empty queue."""
        self.ledger = Ledger(LedgerSnapshot.from_json(self.ledger.snapshot().as_json()))
        self.queue = UnrollQueue()
        self.credit = CreditPool(2 * E, expires_seconds=60.0)
        self.ingest = Ingest(
            run=ServedRun("actor.learner", "run", contract, range(1)),
            layout=LAYOUT,
            action_repeat=1,
            ledger=self.ledger,
            queue=self.queue,
            credit=self.credit,
            on_episode=lambda episode, _: self.episodes.append(episode),
            on_unrolls=lambda *_: None,
        )

    def stop(self) -> None:
        """Die without reading what has arrived; returns when the port is free."""
        self.router.close()
        self.context.destroy(linger=0)

    def restart(self) -> None:
        self.stop()
        self.bind(self.endpoint)
        self.serve("contract")

    def pump(self, timeout_seconds: float = 0.005) -> None:
        self.poller.poll(timeout_seconds)
        while (received := self.router.receive()) is not None:
            peer, frames = received
            self.seen.append(UNROLLS.decode(frames[0]).type)
            self.send(*self.ingest.on_message(peer, list(frames), time.monotonic()))

    def send(self, *replies: Reply) -> None:
        for reply in replies:
            assert self.router.send(reply.peer, encode(reply.message))

    def consume(self) -> None:
        """Take everything from the queue."""
        unrolls, _ = self.queue.take(len(self.queue), lambda _: False, 0)
        values = [int(unroll.arrays["episode_id"][unroll.row]) for unroll in unrolls]
        for unroll, value in zip(unrolls, values, strict=True):
            assert np.all(unroll.arrays["frames"][unroll.row] == value % 256)
        self.accepted += values[::E]
        self.ledger.consume(frames_by_task(unrolls))
        self.send(*self.ingest.on_consumed(len(unrolls)))

    def only_peer(self) -> Peer:
        (peer,) = self.ingest._sessions
        return peer


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
    arrays["row_valid"][...] = True
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
    return client.send_unrolls(marked(value), num_frames=FRAMES)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_unrolls_arrive_with_their_reports_and_are_acknowledged(learner: Learner, context: Context, compression: Compression) -> None:
    client = connect(context, learner.endpoint, compression=compression)
    episode = EpisodeReport(task_id=0, environment_slot=1, episode_id=2, episode_return=3.0, agent_steps=4)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    assert client.send_unrolls(marked(7), num_frames=FRAMES, episodes=[episode]) == 1
    assert (client.num_unacked, client.acked_sequence) == (1, 0)
    until(lambda: client.num_unacked == 0, learner, client)
    assert client.acked_sequence == 1
    assert learner.episodes == [episode]
    assert learner.ledger.totals().generated == client.generated_frames == FRAMES
    learner.consume()
    assert learner.accepted == [7]
    until(lambda: client.socket.bytes_out == learner.router.bytes_in, learner)  # on a slow machine a keep-alive may be on its way
    client.close()


def test_unrolls_in_flight_are_bounded_by_credit(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    assert not client.has_credit(E)
    for value in (1, 2):
        send(value, client, learner)
    client.request_credit(E)
    until(lambda: client.num_unacked == 0 and learner.credit.num_waiting == 1, learner, client)
    assert not client.wait_for_credit(E, 0.01)
    assert client.blocked_seconds >= 0.01
    with pytest.raises(RuntimeError, match="no credit for 2 unrolls"):
        client.send_unrolls(marked(3), num_frames=1)
    learner.consume()
    assert client.wait_for_credit(E, DEADLINE_SECONDS)
    client.close()


def greet(client: UnrollClient, learner: Learner, now: list[float]) -> None:
    """Advance the clock until the first hello has been sent; without a connection it is retried every 10 ms."""
    while "hello" not in learner.seen:
        now[0] += 0.001
        client.poll()
        learner.pump()


def waiting(learner: Learner, context: Context, now: list[float]) -> UnrollClient:
    """Return a client that waits for credit, all of which is held. The clock stands still, so no timeout can help."""
    client = connect(context, learner.endpoint, clock=lambda: now[0])
    greet(client, learner, now)
    for value in range(2):
        send(value, client, learner)
    until(lambda: client.num_unacked == 0, learner, client)
    client.request_credit(E)
    until(lambda: learner.credit.num_waiting == 1, learner, client)
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
    learner.send(Reply(learner.only_peer(), HelloRequired(reason="so soon")))
    until(lambda: not client.connected, learner, client)
    for _ in range(5):
        client.poll()
        learner.pump()
    assert learner.seen.count("hello") == 1
    now[0] += 1.6  # the longest first delay is 1.5 s
    until(lambda: client.connected, learner, client)
    assert learner.seen.count("hello") == 2
    client.close()


def test_a_rejected_message_is_not_sent_again(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    client.send_unrolls(marked(1) | {"rewards": np.full((E, 4), np.nan, np.float32)}, num_frames=FRAMES)
    send(2, client, learner)
    until(lambda: client.num_unacked == 0, learner, client)
    learner.consume()
    assert learner.accepted == [2]
    assert client.num_rejected == 1
    assert learner.seen.count("unrolls") == 2
    client.close()


def test_a_refusal_is_reported_until_a_learner_accepts(learner: Learner, context: Context) -> None:
    learner.serve("another contract")
    client = connect(context, learner.endpoint)
    until(lambda: client.refused is not None, learner, client)
    assert "contract" in str(client.refused)
    assert not client.connect(0.0)
    learner.serve("contract")
    until(lambda: client.connected, learner, client)
    assert client.refused is None
    client.close()


def test_a_goodbye_ends_the_run_or_returns_the_credit(learner: Learner, context: Context) -> None:
    client = connect(context, learner.endpoint)
    client.request_credit(E)
    until(lambda: client.has_credit(E), learner, client)
    assert learner.credit.granted_unused == E
    assert not client.run_is_over
    learner.send(Reply(learner.only_peer(), Goodbye()))
    until(lambda: client.run_is_over, learner, client)
    client.close()
    until(lambda: learner.credit.granted_unused == 0, learner)
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
