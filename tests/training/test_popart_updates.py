"""PopArt through the whole trainer over several updates, against a slow float64 oracle.

There are three tasks whose rewards differ by 300x. One never appears, and one is missing from some batches. Rows that only start a game
carry rewards and actions that must be ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from herd.components.optimizers import Rates
from herd.training.trainer import Trainer
from tests.oracles.actor_critic import Costs
from tests.oracles.popart import SlowPopArt, Unrolls
from tests.training.small_runs import BATCH_SIZE, buffer_of, run_of, trainer_of, unrolls_of

RATE = 0.05
LEARNING_RATE = 3e-3
NUM_UPDATES = 6
COSTS = Costs(clip_rho_threshold=1.0, clip_c_threshold=1.0, clip_pg_rho_threshold=1.0, baseline_cost=0.5, entropy_cost=0.01)
SETTINGS = run_of(
    env={"suite": "catch", "tasks": ["catch"], "reward_scales": [1.0, 300.0, 7.0], "frame_height": 4, "frame_width": 3},
    network={"torso": "mlp"},
    algorithm={"unroll_length": 4, "reward_shaping": "none"},
    value_scaling={"kind": "popart", "rate": RATE},
    optimizer={"max_gradient_norm": None, "epsilon": 0.01},
)
LAYERS = {"first": "torso.first", "second": "torso.second", "policy": "policy_head", "value": "value_head"}


def _arrays(number: int) -> dict[str, NDArray[Any]]:
    arrays = unrolls_of(SETTINGS, number)
    random = np.random.default_rng([7, number])
    arrays["task_id"][...] = 0 if number == 2 else random.integers(0, 2, BATCH_SIZE)
    scale = np.where(arrays["task_id"] == 1, 300.0, 1.0)[:, None]
    arrays["rewards"][...] = (arrays["rewards"] + 0.5) * scale
    arrays["rewards"][~arrays["row_valid"]] = 1e4
    return arrays


def _seen(arrays: dict[str, NDArray[Any]]) -> Unrolls:
    def rows(name: str, dtype: type = np.float64) -> NDArray[Any]:
        return arrays[name].swapaxes(0, 1).astype(dtype)

    frames = rows("frames") / 255.0
    return Unrolls(
        pixels=frames.reshape(*frames.shape[:2], -1),
        actions=rows("actions", np.int64),
        behaviour_logits=rows("behaviour_parameters"),
        rewards=rows("rewards"),
        terminated=rows("terminated", np.bool_),
        row_valid=rows("row_valid", np.bool_),
        task_ids=arrays["task_id"].astype(np.int64),
    )


def _trainer() -> Trainer:
    torch.set_num_threads(1)
    return trainer_of(SETTINGS)


def _named(trainer: Trainer) -> dict[str, NDArray[np.float64]]:
    weights = trainer.weights()
    return {f"{mine}.{part}": weights[f"{own}.{part}"].double().numpy() for mine, own in LAYERS.items() for part in ("weight", "bias")}


def test_several_updates_agree_with_the_oracle() -> None:
    trainer = _trainer()
    slow = SlowPopArt(_named(trainer), 3, rate=RATE, costs=COSTS, discount=SETTINGS.algorithm.discount)
    for number in range(NUM_UPDATES):
        arrays = _arrays(number)
        assert trainer(buffer_of(SETTINGS, arrays), Rates(LEARNING_RATE)).is_finite
        slow.update(_seen(arrays), LEARNING_RATE)
        statistics = trainer.parts["value_statistics"].tensors()
        np.testing.assert_allclose(statistics["shift"].numpy(), slow.shift, rtol=2e-5, err_msg=f"shift after update {number}")
        np.testing.assert_allclose(statistics["second_moment"].numpy(), slow.second_moment, rtol=2e-5)
        told = trainer.values_by_task()
        np.testing.assert_allclose(told["value_shift"], slow.shift, rtol=2e-5)
        np.testing.assert_allclose(told["value_scale"], [slow.scale(task) for task in range(3)], rtol=1e-4)
        for name, parameter in _named(trainer).items():
            np.testing.assert_allclose(parameter, slow.parameters[name], rtol=1e-3, atol=2e-5, err_msg=f"{name} after update {number}")
    assert statistics["shift"][2] == 0.0  # the task that never appeared
    assert slow.scale(1) > 30.0 * slow.scale(0)  # the statistics of the others are far from their initial values
    assert slow.scale(1) > 20.0
