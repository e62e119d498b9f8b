"""The learner's side of R12 to R24 of docs/messaging.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from herd_learner.intake.ingest import DEPARTURE_SECONDS, TAKEOVER_SECONDS, Reply, inverse_temperatures_of
from herd_learner.intake.ledger import MAX_SKIPPED, Ledger, LedgerSnapshot

from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.protocols.unrolls.messages import (
    Ack,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    HelloRequired,
    Rejected,
    Welcome,
)
from herd.protocols.unrolls.metrics import LEARNER_RESTART, MALFORMED
from herd.protocols.weights.messages import GetWeights
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Refused
from herd.transport import Frame, Peer
from tests.learner.ingest_learner import CAPACITY, OTHER, PEER, Learner
from tests.learner.small_unrolls import FRAMES_PER_UNROLL, small_arrays, unrolls_message


@pytest.fixture
def learner() -> Learner:
    """A learner with one actor in a session, with credit for four unrolls."""
    learner = Learner()
    assert learner.hello() == [Reply(PEER, Welcome(id=3, accepted_sequence=0, granted_unrolls=0))]
    assert learner.grant(4) == [Reply(PEER, Credit(granted_unrolls=4))]
    return learner


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"agent": 1}, "serves agent 0, not 1"),
        ({"run": "another"}, "belongs to run run, not another"),
        ({"contract": "d" * 64}, "dddddddddddd"),
        ({"max_unrolls": CAPACITY + 1}, "learner.queue_batches"),
        # The longest name that the protocol allows; each character prints as ten.
        ({"run": "\U000e0001" * 128}, "not \\U000e0001"),
    ],
)
def test_hello_is_refused_with_a_reason(changes: dict[str, Any], names: str) -> None:
    learner = Learner()
    (reply,) = learner.hello(**changes)
    assert isinstance(reply.message, Refused)
    assert reply.message.id == 3
    assert names in reply.message.reason
    assert learner.credit.num_peers == 0
    assert learner.ledger.snapshot() == LedgerSnapshot()


def test_a_learner_accepts_only_actors_of_its_agent() -> None:
    learner = Learner(agent=1)
    (refused,) = learner.hello()
    assert isinstance(refused.message, Refused)
    assert "serves agent 1, not 0" in refused.message.reason
    (welcomed,) = learner.hello(agent=1)
    assert isinstance(welcomed.message, Welcome)


def test_a_valid_message_is_queued_acknowledged_and_recorded(learner: Learner) -> None:
    episode = EpisodeReport(task_id=1, environment_slot=5, episode_id=2, episode_return=3.5, agent_steps=9)
    arrays = small_arrays(2, version=(3, 14))
    arrays["task_id"][:] = [0, 1]
    arrays["row_valid"][1, 1] = False  # this step only started a game
    frames = unrolls_message(1, generated=12, num_frames=12, num_unrolls=2, arrays=arrays, episodes=(episode,))
    assert learner.receive(frames) == [Reply(PEER, Ack(sequence=1, granted_unrolls=4))]
    assert learner.episodes == [episode]
    assert learner.reported == [(2, None)]
    booked = learner.ledger.snapshot()
    assert (booked.total.in_flight, booked.task(0).in_flight, booked.task(1).in_flight) == (12, 8, 4)
    unrolls, _ = learner.queue.take(2, lambda _: False, 0)
    assert [(unroll.actor, unroll.policy_version, unroll.task_id, unroll.num_frames, unroll.row) for unroll in unrolls] == [
        ((0, 7), (3, 14), 0, 8, 0),
        ((0, 7), (3, 14), 1, 4, 1),
    ]
    for name, array in arrays.items():
        np.testing.assert_array_equal(unrolls[0].arrays[name], array)


def test_a_duplicate_is_acknowledged_and_not_counted(learner: Learner) -> None:
    first = unrolls_message(1, generated=8)
    learner.receive(first)
    ledger, queued = learner.ledger.snapshot(), len(learner.queue)
    # Its credit is used and immediately returned, because nothing of the message is queued.
    assert learner.receive(first) == [Reply(PEER, Ack(sequence=1, granted_unrolls=4))]
    assert (learner.ledger.snapshot(), len(learner.queue), learner.credit.held) == (ledger, queued, 1)
    assert learner.receive(unrolls_message(2, generated=16)) == [Reply(PEER, Ack(sequence=2, granted_unrolls=4))]


@pytest.mark.parametrize("case", ["unknown peer", "sequence", "credit", "expired"])
def test_messages_not_allowed_in_the_session_require_hello(learner: Learner, case: str) -> None:
    peer, frames = PEER, unrolls_message(1, generated=8)
    if case == "unknown peer":
        peer = OTHER
    elif case == "sequence":
        frames = unrolls_message(2, generated=16)
    elif case == "credit":
        frames = unrolls_message(1, generated=5 * FRAMES_PER_UNROLL, num_unrolls=5)
    else:
        learner.ingest.expire(60.0)
    before = learner.state()
    (reply,) = learner.receive(frames, peer)
    assert reply.peer == peer
    assert isinstance(reply.message, HelloRequired)
    assert learner.state() == before


@pytest.mark.parametrize("message", [CreditRequest(wanted_unrolls=1), Goodbye()])
def test_a_peer_without_a_session_must_send_hello(message: Any) -> None:
    learner = Learner()
    (reply,) = learner.receive(encode(message))
    assert isinstance(reply.message, HelloRequired)


def _drop_an_array(frames: list[Frame]) -> list[Frame]:
    return frames[:-1]


def _cut_an_array(frames: list[Frame]) -> list[Frame]:
    return [*frames[:2], frames[2][:-1], *frames[3:]]


def _altered(name: str, value: Any) -> Any:
    def alter(frames: list[Frame]) -> list[Frame]:
        arrays = small_arrays(1)
        arrays[name][...] = value
        return unrolls_message(1, generated=8, arrays=arrays)

    return alter


@pytest.mark.parametrize(
    "spoil",
    [
        _drop_an_array,
        _cut_an_array,
        _altered("actions", 2),
        _altered("rewards", np.nan),
        _altered("task_id", 2),
        _altered("row_valid", False),  # these unrolls hold no env frames, but the header says 8
        lambda _: unrolls_message(
            1, generated=8, episodes=(EpisodeReport(task_id=2, environment_slot=0, episode_id=0, episode_return=0.0, agent_steps=1),)
        ),
    ],
)
def test_unrolls_with_unusable_arrays_are_rejected(learner: Learner, spoil: Any) -> None:
    (reply,) = learner.receive(spoil(unrolls_message(1, generated=8)))
    assert isinstance(reply.message, Rejected)
    assert (reply.message.sequence, reply.message.granted_unrolls) == (1, 4)
    assert learner.ledger.snapshot().report() == {"generated": 8, "consumed": 0, "dropped": {MALFORMED: 8}, "in_flight": 0}
    assert (len(learner.queue), learner.credit.held, learner.reported, learner.episodes) == (0, 0, [(1, MALFORMED)], [])
    # The stream continues after it, in the same memory.
    assert learner.receive(unrolls_message(2, generated=16)) == [Reply(PEER, Ack(sequence=2, granted_unrolls=4))]


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\xc1"],
        encode(Welcome(id=1, accepted_sequence=0, granted_unrolls=9)),
        encode(GetWeights(id=1, run="run", agent=0, contract="c", have=None)),
        unrolls_message(2, generated=7),  # the cumulative count decreased
    ],
)
def test_a_malformed_message_changes_nothing(learner: Learner, frames: list[Frame]) -> None:
    learner.receive(unrolls_message(1, generated=8))
    before = learner.state()
    with pytest.raises(MalformedMessage):
        learner.receive(frames)
    assert learner.state() == before


def test_hello_after_a_lost_learner_skips_messages_it_had_accepted() -> None:
    """Rule 1: messages 2..4 were acknowledged by a learner that died after its checkpoint."""
    before = Learner()
    before.hello()
    before.grant(1)
    before.receive(unrolls_message(1, generated=8))
    learner = Learner(ledger=Ledger(LedgerSnapshot.from_json(before.ledger.snapshot().as_json())))
    (reply,) = learner.hello(oldest_sequence=5)
    assert reply.message == Welcome(id=3, accepted_sequence=4, granted_unrolls=0)
    learner.grant(1)
    learner.receive(unrolls_message(5, generated=40))
    assert learner.ledger.snapshot().report() == {"generated": 40, "consumed": 0, "dropped": {LEARNER_RESTART: 32}, "in_flight": 8}


def test_hello_in_a_session_starts_a_new_one(learner: Learner) -> None:
    learner.receive(unrolls_message(1, generated=8))
    (reply,) = learner.hello(id=4, oldest_sequence=1)
    assert reply.message == Welcome(id=4, accepted_sequence=1, granted_unrolls=0)
    assert (learner.credit.granted_unused, learner.credit.held) == (0, 1)
    (reply,) = learner.receive(unrolls_message(2, generated=16))
    assert isinstance(reply.message, HelloRequired)


def test_credit_is_granted_in_request_order(learner: Learner) -> None:
    learner.receive(unrolls_message(1, generated=4 * FRAMES_PER_UNROLL, num_unrolls=4))
    learner.hello(OTHER)
    assert learner.grant(4, OTHER) == [Reply(OTHER, Credit(granted_unrolls=4))]
    # No credit is free; the answer still says so, which shows that the learner is alive.
    assert learner.grant(8) == [Reply(PEER, Credit(granted_unrolls=4))]
    assert learner.ingest.on_consumed(3) == []
    assert learner.ingest.on_consumed(1) == [Reply(PEER, Credit(granted_unrolls=8))]


def test_goodbye_returns_credit_to_waiting_actors(learner: Learner) -> None:
    learner.hello(OTHER, max_unrolls=8)
    assert learner.grant(8, OTHER) == [Reply(OTHER, Credit(granted_unrolls=0))]
    assert learner.receive(encode(Goodbye())) == [Reply(OTHER, Credit(granted_unrolls=8))]


def test_farewell_goes_to_every_actor_in_a_session(learner: Learner) -> None:
    learner.hello(OTHER)
    learner.receive(encode(Goodbye()))
    assert learner.ingest.farewell() == [Reply(OTHER, Goodbye())]


def test_a_silent_actor_loses_its_credit_and_may_reconnect(learner: Learner) -> None:
    learner.hello(OTHER, now=30.0, max_unrolls=8)
    learner.grant(8, OTHER, now=30.0)
    assert learner.ingest.expire(59.0) == []
    assert learner.ingest.expire(60.0) == [Reply(OTHER, Credit(granted_unrolls=8))]
    (reply,) = learner.receive(unrolls_message(1, generated=8), now=61.0)
    assert isinstance(reply.message, HelloRequired)
    (reply,) = learner.hello(now=62.0)
    assert reply.message == Welcome(id=3, accepted_sequence=0, granted_unrolls=0)


def test_credit_of_a_replaced_actor_expires_early(learner: Learner) -> None:
    successor = Peer(b"actor/0/9")
    learner.hello(OTHER, max_unrolls=8)
    learner.grant(8, OTHER)
    learner.hello(successor, now=1.0)
    assert learner.ingest.expire(1.0 + TAKEOVER_SECONDS - 0.1) == []
    assert learner.ingest.expire(1.0 + TAKEOVER_SECONDS) == [Reply(OTHER, Credit(granted_unrolls=8))]
    assert learner.credit.num_peers == 2
    (reply,) = learner.receive(unrolls_message(1, generated=8), PEER)
    assert isinstance(reply.message, HelloRequired)


@pytest.mark.parametrize("num_claimants", [1, 12])
def test_claiming_the_index_of_a_live_actor_takes_no_credit(learner: Learner, num_claimants: int) -> None:
    for second in range(0, 60, 5):
        assert len(learner.hello(Peer(b"actor/0/%x" % (9 + second // 5 % num_claimants)), now=float(second))) == 1
        assert learner.grant(4, now=second + 4.9) == [Reply(PEER, Credit(granted_unrolls=4))]
        assert learner.ingest.expire(second + 4.9) == []
    assert learner.receive(unrolls_message(1, generated=8)) == [Reply(PEER, Ack(sequence=1, granted_unrolls=4))]


def test_disconnected_actors_lose_credit_unless_they_return(learner: Learner) -> None:
    """Two actors hold all credit; both connections end, and one of them is heard again."""
    learner.hello(OTHER, actor_index=1, incarnation=8)
    learner.grant(4)
    learner.grant(4, OTHER)
    assert learner.credit.granted_unused == CAPACITY
    for peer in (PEER, OTHER, Peer(b"actor/9/9")):  # the last actor is unknown
        learner.ingest.on_departed(peer, 10.0)
    learner.grant(4, OTHER, now=14.0)
    learner.ingest.expire(10.0 + DEPARTURE_SECONDS - 0.1)
    assert learner.ingest.has_session(PEER)
    learner.ingest.expire(10.0 + DEPARTURE_SECONDS)
    assert not learner.ingest.has_session(PEER)
    assert learner.ingest.has_session(OTHER)
    assert learner.credit.granted_unused == 4


def test_a_hello_that_skips_too_many_messages_is_refused() -> None:
    """If a hello could skip to the largest sequence number, the next message could book 9e18 frames as dropped."""
    learner = Learner()
    for oldest in (2**63 - 1, MAX_SKIPPED + 2):
        (reply,) = learner.hello(oldest_sequence=oldest)
        assert isinstance(reply.message, Refused)
        assert "restart this actor" in reply.message.reason
        assert not learner.ingest.has_session(PEER)
    (reply,) = learner.hello(oldest_sequence=MAX_SKIPPED + 1)
    assert isinstance(reply.message, Welcome)


@pytest.mark.parametrize("burn_in", [0, 2])
def test_a_games_temperature_is_read_from_its_rows(burn_in: int) -> None:
    layout = UnrollLayout(
        unroll_length=6 + burn_in, burn_in=burn_in, frame_stack=1, frame_shape=(2, 2, 1), actions=discrete(3), num_parameters=3
    )
    arrays = layout.allocate(2)
    arrays["environment_slot"][...] = [40, 41]
    arrays["episode_id"][...] = [7, 3]
    arrays["game_reset"][0, burn_in + 2] = arrays["game_reset"][0, burn_in + 5] = True
    arrays["game_reset"][:, : burn_in + 1] = True  # from earlier games, and from the game that `episode_id` already counts
    arrays["inverse_temperature"][0, burn_in:] = [0.5, 0.5, 20.0, 20.0, 20.0, 0.0]
    arrays["inverse_temperature"][1, burn_in:] = 3.0
    arrays["inverse_temperature"][:, :burn_in] = 9.0
    assert inverse_temperatures_of(arrays, burn_in) == {(40, 7): 0.5, (40, 8): 20.0, (40, 9): 0.0, (41, 3): 3.0}
