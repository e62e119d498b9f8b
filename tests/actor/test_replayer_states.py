"""Replay slots recompute the recurrent states of the actor that played, under the same weights and only under those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from herd.components.optimizers import Rates
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer
from tests.acting.playing import Unroll, confident_trainer, play_unrolls

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_ONLINE, NUM_SLOTS, NUM_UNROLLS = 1, 3, 9
STILL = Rates(0.0)


def _settings(**changes: Any) -> RunSettings:
    return RunSettings.model_validate(
        {
            # Games last ten steps or more: they end inside unrolls of seven steps and run over several unrolls.
            "env": {"suite": "catch", "tasks": ("catch",), "frame_height": 12, "frame_width": 5, "frame_stack": 2, "action_repeat": 1},
            "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True},
            "algorithm": {"unroll_length": 7},
            "replay": {"kind": "shared", "fraction": NUM_SLOTS / (NUM_ONLINE + NUM_SLOTS)},
            "actor": {"environments": NUM_SLOTS},
            "learner": {"batch_size": NUM_ONLINE + NUM_SLOTS, "queue_batches": 8, "micro_batch_size": 3},
            **changes,
        }
    )


def _batch(settings: RunSettings, unroll: Unroll) -> BatchBuffer:
    """A batch of arbitrary online unrolls followed by the slots' unrolls, as replay sends them: without the actor's states."""
    buffer = BatchBuffer(run_layout(settings, environment_spec(settings.env)), NUM_ONLINE + NUM_SLOTS)
    for name, array in buffer.arrays.items():
        if name in unroll:
            array[NUM_ONLINE:] = unroll[name]
    buffer.arrays["initial_core_state"][...] = 0.0
    buffer.set_counts(NUM_ONLINE, NUM_SLOTS)
    return buffer


def _replayed_states(settings: RunSettings, trainer: Trainer, unrolls: list[Unroll]) -> np.ndarray:
    """[unroll, slot, 2, H]: the state at the start of each unroll when the trainer trains on the unrolls in order."""
    states = []
    for unroll in unrolls:
        buffer = _batch(settings, unroll)
        trainer(buffer, STILL)
        states.append(buffer.arrays["initial_core_state"][NUM_ONLINE:].copy())
    return np.stack(states)


def test_repeated_updates_on_a_batch_start_from_the_same_states() -> None:
    settings = _settings()
    trainer = confident_trainer(settings)
    unrolls = play_unrolls(settings, trainer, NUM_UNROLLS)
    expected = _replayed_states(settings, confident_trainer(settings), unrolls)
    states = []
    for unroll in unrolls:
        buffer = _batch(settings, unroll)
        batch = trainer.to_device(buffer)
        trainer.begin(batch, buffer.num_replayed)
        for _ in range(2):
            trainer.finish(trainer.launch(batch), STILL)
        states.append(buffer.arrays["initial_core_state"][NUM_ONLINE:].copy())
    np.testing.assert_array_equal(np.stack(states), expected)


def test_replay_slots_keep_their_states_without_replayed_rows() -> None:
    settings = _settings()
    trainer = confident_trainer(settings)
    unrolls = play_unrolls(settings, trainer, NUM_UNROLLS)
    expected = _replayed_states(settings, confident_trainer(settings), unrolls)
    states = []
    for unroll in unrolls:
        alone = _batch(settings, unrolls[0])
        alone.set_counts(NUM_ONLINE, 0)
        trainer(alone, STILL)
        buffer = _batch(settings, unroll)
        trainer(buffer, STILL)
        states.append(buffer.arrays["initial_core_state"][NUM_ONLINE:].copy())
    np.testing.assert_array_equal(np.stack(states), expected)


def test_a_non_finite_state_does_not_persist() -> None:
    settings = _settings()
    trainer = confident_trainer(settings)
    unrolls = play_unrolls(settings, trainer, NUM_UNROLLS)
    buffer = _batch(settings, unrolls[0])
    buffer.arrays["rewards"][...] = np.float32("nan")
    buffer.arrays["core_reset"][...] = False
    buffer.arrays["initial_core_state"][...] = np.float32("inf")
    assert not trainer(buffer, STILL).is_finite
    after = _batch(settings, unrolls[1])
    assert trainer(after, STILL).is_finite
    assert np.isfinite(after.arrays["initial_core_state"]).all()


def test_an_agent_without_a_core_has_no_states() -> None:
    settings = _settings(network={"torso": "mlp"})
    trainer = confident_trainer(settings)
    buffer = BatchBuffer(run_layout(settings, environment_spec(settings.env)), NUM_ONLINE + NUM_SLOTS)
    buffer.set_counts(NUM_ONLINE, NUM_SLOTS)
    assert trainer(buffer, STILL).is_finite
