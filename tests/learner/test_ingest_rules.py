"""The learner's side of R12 to R24 of docs/messaging.md."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from herd_learner.intake.ingest import DEPARTURE_SECONDS, TAKEOVER_SECONDS, Reply, inverse_temperatures_of
from herd_learner.intake.ledger import MAX_SKIPPED, Ledger, LedgerSnapshot

from herd.contract.spaces import discrete
from herd.contract.unroll import LARGEST_RETURN, UnrollLayout
from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.messages import (
    Ack,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    HelloRequired,
    Rejected,
    Unrolls,
    Welcome,
)
from herd.protocols.unrolls.metrics import LEARNER_RESTART, MALFORMED
from herd.protocols.weights.messages import GetWeights
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Refused
from herd.transport import Frame, Peer
from tests.learner.ingest_learner import CAPACITY, OTHER, PEER, Learner
from tests.learner.small_unrolls import ACTION_REPEAT, FRAMES_PER_UNROLL, LAYOUT, small_arrays, unrolls_message


@pytest.fixture
def learner() -> Learner:
    """A learner with one actor in a session, with credit for four unrolls."""
    learner = Learner()
    assert learner.hello() == [Reply(PEER, Welcome(id=3, accepted_sequence=0, granted_unrolls=0))]
    assert learner.grant(4) == [Reply(PEER, Credit(granted_unrolls=4))]
    return learner


@pytest.mark.parametrize(
    ("serves", "changes", "label", "names"),
    [
        (0, {"agent": 1}, "agent", "serves agent 0, not 1"),
        (1, {}, "agent", "serves agent 1, not 0"),
        (0, {"run": "another"}, "run", "belongs to run run, not another"),
        (0, {"contract": "d" * 64}, "contract", "dddddddddddd"),
        (0, {"max_unrolls": CAPACITY + 1}, "size", "learner.queue_batches"),
        # The longest name that the protocol allows; each character prints as ten.
        (0, {"run": "\U000e0001" * 128}, "run", "not \\U000e0001"),
    ],
)
def test_hello_is_refused_with_a_reason(serves: int, changes: dict[str, Any], label: str, names: str) -> None:
    learner = Learner(agent=serves)
    (reply,) = learner.hello(**changes)
    assert isinstance(reply.message, Refused)
    assert reply.message.id == 3
    assert names in reply.message.reason
    assert learner.refused == {label: 1}
    assert learner.credit.num_peers == 0
    assert learner.ledger.snapshot() == LedgerSnapshot()
    (welcomed,) = learner.hello(agent=serves)
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
    assert learner.refused == {"duplicate": 1}
    assert learner.receive(unrolls_message(2, generated=16)) == [Reply(PEER, Ack(sequence=2, granted_unrolls=4))]


@pytest.mark.parametrize(
    ("peer", "frames", "now", "label"),
    [
        (OTHER, unrolls_message(1, generated=8), 0.0, "session"),
        (OTHER, encode(CreditRequest(wanted_unrolls=1)), 0.0, "session"),
        (OTHER, encode(Goodbye()), 0.0, "session"),
        (PEER, unrolls_message(2, generated=16), 0.0, "sequence"),
        (PEER, unrolls_message(1, generated=5 * FRAMES_PER_UNROLL, num_unrolls=5), 0.0, "credit"),
        (PEER, encode(CreditRequest(wanted_unrolls=5)), 0.0, "credit"),  # a message of 4 beyond one that did not arrive
        (PEER, unrolls_message(1, generated=8), 60.0, "session"),  # the session has expired
    ],
)
def test_messages_not_allowed_in_the_session_require_hello(
    learner: Learner, peer: Peer, frames: list[Frame], now: float, label: str
) -> None:
    learner.ingest.expire(now)
    before = learner.state()
    (reply,) = learner.receive(frames, peer)
    assert reply.peer == peer
    assert isinstance(reply.message, HelloRequired)
    assert learner.state() == before
    assert learner.refused == {label: 1}


def _altered(name: str, value: Any) -> list[Frame]:
    arrays = small_arrays(1)
    arrays[name][...] = value
    return unrolls_message(1, generated=8, arrays=arrays)


def _with_episodes(count: int = 1, **changes: Any) -> list[Frame]:
    fields = {"task_id": 0, "environment_slot": 0, "episode_id": 0, "episode_return": 1.0, "agent_steps": 1}
    return unrolls_message(1, generated=8, episodes=(EpisodeReport(**{**fields, **changes}),) * count)


VALID = unrolls_message(1, generated=8)


@pytest.mark.parametrize(
    "frames",
    [
        VALID[:-1],  # an array is missing
        [*VALID[:2], VALID[2][:-1], *VALID[3:]],
        _altered("actions", 2),
        _altered("rewards", np.nan),
        _altered("task_id", 2),
        _altered("row_valid", False),  # these unrolls hold no env frames, but the header says 8
        _with_episodes(task_id=2),
        _with_episodes(episode_return=1.7e308),
        _with_episodes(episode_return=-math.nextafter(LARGEST_RETURN, math.inf)),
        _with_episodes(LAYOUT.unroll_length + 1),  # more games than agent steps
    ],
)
def test_unusable_unrolls_are_rejected(learner: Learner, frames: list[Frame]) -> None:
    (reply,) = learner.receive(frames)
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
        unrolls_message(2, generated=8 + FRAMES_PER_UNROLL + 1),  # more than this message holds
        unrolls_message(2, generated=2**63 - 1),
        unrolls_message(2, generated=8 + FRAMES_PER_UNROLL + 1, num_frames=FRAMES_PER_UNROLL + 1),  # more than its unrolls hold
        unrolls_message(2, generated=2**63 - 1, num_frames=2**63 - 1),
        [*encode(CreditRequest(wanted_unrolls=9)), b"surplus"],
        [*encode(Goodbye()), b"surplus"],
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
    with pytest.raises(MalformedMessage, match="generated_frames"):  # the skipped messages cannot have held so many
        learner.receive(unrolls_message(5, generated=8 + 3 * 4 * FRAMES_PER_UNROLL + FRAMES_PER_UNROLL + 1))
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


# -- burn-in: each step is counted only in the unroll where it is new


BURN_IN = 2
BURNT_IN = replace(LAYOUT, unroll_length=5, burn_in=BURN_IN)


def send_rows(learner: Learner, row_valid: list[list[bool]], num_frames: int) -> list[object]:
    """Send one message of unrolls with the given valid rows [B, T]; returns the learner's answers."""
    arrays = BURNT_IN.allocate(len(row_valid))
    arrays["row_valid"][...] = np.array(row_valid)
    arrays["policy_version"][...] = (1, 0)
    header = Unrolls(sequence=1, generated_frames=num_frames, num_frames=num_frames, num_unrolls=len(row_valid))
    return [reply.message for reply in learner.receive([*encode(header), *pack_arrays(arrays)])]


@pytest.fixture
def burning_in() -> Learner:
    learner = Learner(layout=BURNT_IN)
    learner.hello()
    learner.grant(4)
    return learner


@pytest.mark.parametrize(
    ("row_valid", "agent_steps"),
    [
        ([[True] * 5], [3]),
        ([[False, False, True, True, True]], [3]),  # the first unroll of an actor has nothing to repeat
        ([[True, True, True, False, True]], [2]),
        ([[True] * 5, [True, False, False, False, False]], [3, 0]),
    ],
)
def test_burn_in_steps_are_not_counted_again(burning_in: Learner, row_valid: list[list[bool]], agent_steps: list[int]) -> None:
    num_frames = sum(agent_steps) * ACTION_REPEAT
    replies = send_rows(burning_in, row_valid, num_frames)
    assert not any(isinstance(reply, Rejected) for reply in replies)
    taken, _ = burning_in.queue.take(len(row_valid), timeout=0.0, is_stale=lambda _: False)
    assert [unroll.num_frames for unroll in taken] == [steps * ACTION_REPEAT for steps in agent_steps]
    assert burning_in.ledger.snapshot().total.in_flight == num_frames


def test_a_frame_count_below_the_new_steps_is_rejected(burning_in: Learner) -> None:
    (reply,) = send_rows(burning_in, [[True] * 5], 2 * ACTION_REPEAT)
    assert isinstance(reply, Rejected)
    assert len(burning_in.queue) == 0


@pytest.mark.parametrize("counted", [4, 5])
def test_a_frame_count_above_the_unroll_is_malformed(burning_in: Learner, counted: int) -> None:
    before = burning_in.state()
    with pytest.raises(MalformedMessage):
        send_rows(burning_in, [[True] * 5], counted * ACTION_REPEAT)
    assert burning_in.state() == before
