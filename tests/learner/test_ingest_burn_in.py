"""Frames of unrolls that begin with a burn-in: each step is counted only in the unroll where it is new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.messages import Rejected, Unrolls
from herd.rpc.codec import MalformedMessage, encode
from tests.learner.ingest_learner import Learner
from tests.learner.small_unrolls import ACTION_REPEAT, LAYOUT

BURN_IN = 2
BURNT_IN = replace(LAYOUT, unroll_length=5, burn_in=BURN_IN)


def send(learner: Learner, row_valid: list[list[bool]], num_frames: int) -> list[object]:
    """Send one message of unrolls with the given valid rows [B, T]; returns the learner's answers."""
    arrays = BURNT_IN.allocate(len(row_valid))
    arrays["row_valid"][...] = np.array(row_valid)
    arrays["policy_version"][...] = (1, 0)
    header = Unrolls(sequence=1, generated_frames=num_frames, num_frames=num_frames, num_unrolls=len(row_valid))
    return [reply.message for reply in learner.receive([*encode(header), *pack_arrays(arrays)])]


@pytest.fixture
def learner() -> Learner:
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
def test_burn_in_steps_are_not_counted_again(learner: Learner, row_valid: list[list[bool]], agent_steps: list[int]) -> None:
    num_frames = sum(agent_steps) * ACTION_REPEAT
    replies = send(learner, row_valid, num_frames)
    assert not any(isinstance(reply, Rejected) for reply in replies)
    taken, _ = learner.queue.take(len(row_valid), timeout=0.0, is_stale=lambda _: False)
    assert [unroll.num_frames for unroll in taken] == [steps * ACTION_REPEAT for steps in agent_steps]
    assert learner.ledger.snapshot().total.in_flight == num_frames


def test_a_frame_count_below_the_new_steps_is_rejected(learner: Learner) -> None:
    (reply,) = send(learner, [[True] * 5], 2 * ACTION_REPEAT)
    assert isinstance(reply, Rejected)
    assert len(learner.queue) == 0


@pytest.mark.parametrize("counted", [4, 5])
def test_a_frame_count_above_the_unroll_is_malformed(learner: Learner, counted: int) -> None:
    before = learner.state()
    with pytest.raises(MalformedMessage):
        send(learner, [[True] * 5], counted * ACTION_REPEAT)
    assert learner.state() == before
