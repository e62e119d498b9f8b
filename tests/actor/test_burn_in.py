"""Unrolls that begin with a copy of the end of the previous unroll, from the actor's arrays to the learner's count of frames."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import torch
from herd_actor.loop import Group
from numpy.typing import NDArray

from herd.acting.temperatures import Temperatures
from herd.algorithms import actor_critic
from herd.components.optimizers import Rates
from herd.components.suites import environment_spec
from herd.components.suites.api import Transition
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.training.batch import BatchBuffer
from herd.training.trainer import Losses, Trainer
from tests.acting.playing import Unroll, confident_trainer, local_policy, make_group, play_unroll

BURN_IN, LENGTH, NUM_ENVIRONMENTS = 3, 7, 3
SETTINGS = RunSettings.model_validate(
    {
        "env": {"suite": "catch", "tasks": ("catch",), "frame_height": 6, "frame_width": 5, "frame_stack": 2, "action_repeat": 1},
        "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 8}, "last_action_and_reward": True},
        "algorithm": {"unroll_length": LENGTH, "burn_in": BURN_IN},
        "actor": {"environments": NUM_ENVIRONMENTS},
        "learner": {"batch_size": NUM_ENVIRONMENTS, "queue_batches": 4, "micro_batch_size": 2},
    }
)
LAYOUT = run_layout(SETTINGS, environment_spec(SETTINGS.env))


class _AnotherForEachRow(Temperatures):
    """Every row has a different temperature, so that mixing up two rows shows."""

    def __init__(self) -> None:
        self._row = 0

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        self._row += 1
        return np.full(len(game_reset), 0.5 + self._row % 10, np.float32)


def _played(num_unrolls: int, *, same_arrays: bool = False) -> tuple[Trainer, list[Unroll], int]:
    """Play unrolls with one policy; also return the number of valid steps played."""
    trainer = confident_trainer(SETTINGS)
    policy = local_policy(trainer)
    group = make_group(SETTINGS, NUM_ENVIRONMENTS, temperatures=_AnotherForEachRow())
    arrays, unrolls, num_valid = LAYOUT.allocate(NUM_ENVIRONMENTS), [], 0

    def count(_group: Group, transition: Transition) -> None:
        nonlocal num_valid
        num_valid += int(transition.valid.sum())

    for number in range(num_unrolls):
        unroll = play_unroll(SETTINGS, [group], policy, version=number, arrays=arrays if same_arrays else None, on_step=count)
        unrolls.append({name: array.copy() for name, array in unroll.items()})
    group.environments.close()
    return trainer, unrolls, num_valid


def test_the_burn_in_repeats_the_end_of_the_previous_unroll() -> None:
    assert (LAYOUT.unroll_length, LAYOUT.new_steps) == (BURN_IN + LENGTH, LENGTH)
    _, unrolls, _ = _played(6)
    for before, after in pairwise(unrolls):
        for name in (field.name for field in LAYOUT.along("row", "step")):
            if name in after:
                # Fields that are known for every row overlap by one more row, because the first new step acts on it.
                rows = BURN_IN + (1 if after[name].shape[1] == LAYOUT.unroll_length + 1 else 0)
                np.testing.assert_array_equal(after[name][:, :rows], before[name][:, before[name].shape[1] - rows :], err_msg=name)
        assert (after["policy_version"][:, 0] == [1, after["policy_version"][0, 1, 1]]).all()  # versions of the unroll's own steps


def test_every_valid_step_is_trained_in_exactly_one_unroll() -> None:
    _, unrolls, num_valid = _played(6)
    assert sum(int(unroll["row_valid"][:, BURN_IN:].sum()) for unroll in unrolls) == num_valid
    # There is nothing before an actor's first step.
    assert not unrolls[0]["row_valid"][:, :BURN_IN].any()
    assert unrolls[0]["core_reset"][:, : BURN_IN + 1].all()


def test_reusing_arrays_gives_the_same_unrolls() -> None:
    _, apart, _ = _played(5)
    _, again, _ = _played(5, same_arrays=True)
    for one, other in zip(apart, again, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def _losses(trainer: Trainer, unroll: Unroll) -> Losses:
    return trainer(BatchBuffer.from_unrolls(LAYOUT, unroll), Rates(0.0)).losses


def test_losses_use_only_the_rows_after_the_burn_in() -> None:
    trainer, unrolls, _ = _played(8)
    for unroll in unrolls:
        with mock.patch("herd.components.losses.impala.loss.actor_critic_loss", wraps=actor_critic.actor_critic_loss) as loss:
            losses = _losses(trainer, unroll)
        assert losses["mean_rho"].value == pytest.approx(1.0, abs=1e-4)
        for call in loss.call_args_list:
            assert call.kwargs["actions"].shape[0] == LENGTH
            target, behaviour = (call.kwargs[name].log_policy.detach() for name in ("target", "behaviour"))
            torch.testing.assert_close(target, behaviour, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("field", ["initial_core_state", "last_action", "core_reset"])
def test_the_state_before_the_burn_in_affects_the_loss(field: str) -> None:
    trainer, unrolls, _ = _played(8)
    changed = 0
    for unroll in unrolls[1:]:
        # In this environment no game starts during burn-in, so the state before it matters.
        going_on = ~unroll["core_reset"][:, : BURN_IN + 1].any(axis=1)
        wrong = unroll[field]
        spoiled = ~wrong if wrong.dtype == bool else (wrong + 1) % 3 if wrong.dtype == np.int32 else wrong + 1.0
        changed += bool(going_on.any()) and _losses(trainer, {**unroll, field: spoiled}) != _losses(trainer, unroll)
    assert changed > 0
