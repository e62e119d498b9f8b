"""DiCE under PopArt: ``Q = scale (v + A) + shift``, compared with the definition in un-normalised numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.components.losses.dice import DiceSettings
from herd.components.losses.dice.loss import dice
from herd.components.value_scaling import VALUE_SCALINGS
from herd.training.forward import run_forward
from tests.oracles.dice import Batch, Costs, boltzmann, constants, importance_ratios
from tests.oracles.retrace import retrace_targets
from tests.training.small_runs import STEP, buffer_of, run_of, trainer_of, unrolls_of

torch.set_num_threads(1)

SETTINGS = run_of(
    env={"suite": "catch", "tasks": ["catch"], "reward_scales": [1.0, 50.0], "frame_height": 4, "frame_width": 3},
    network={"torso": "mlp"},
    algorithm={"unroll_length": 5, "reward_shaping": "none"},
    loss={"kind": "dice"},
    value_scaling={"kind": "popart", "rate": 0.1},
)
COSTS = Costs(clip_rho_threshold=1.05, clip_c_threshold=1.05, clip_pg_rho_threshold=1.05)


def test_the_dice_loss_under_popart_agrees_with_the_oracle() -> None:
    trainer, random = trainer_of(SETTINGS), np.random.default_rng(1)
    for seed in range(4):
        arrays = unrolls_of(SETTINGS, seed)
        arrays["task_id"][...] = [0, 1, 0, 1, 0]
        arrays["inverse_temperature"][...] = random.uniform(0.0, 3.0, (len(arrays["actions"]), 1))
        arrays["rewards"] *= np.where(arrays["task_id"] == 1, 50.0, 1.0)[:, None]
        buffer = buffer_of(SETTINGS, arrays)
        trainer(buffer, STEP)
    forward = run_forward(
        buffer.batch,
        agent=trainer.agent,
        network=trainer.agent,
        algorithm=SETTINGS.algorithm,
        value_scaling=VALUE_SCALINGS.make(SETTINGS.value_scaling, 2),
        statistics=trainer.parts["value_statistics"].tensors(),
        num_trained=buffer.batch.trained.sum(),
    )
    assert forward.value_scale is not None
    scale = forward.value_scale.double().numpy()
    assert scale.max() > 4.0 * scale.min()
    values, advantages, behaviour, tau = (
        tensor.detach().double().numpy()
        for tensor in (forward.values, forward.parameters, buffer.batch.behaviour_parameters, forward.inverse_temperature)
    )
    actions, rewards = forward.actions.numpy(), forward.rewards.double().numpy()
    batch = Batch(advantages, values, behaviour, tau, actions, rewards, forward.terminated.numpy(), forward.trained.numpy())

    of_values = constants(batch, forward.discount, COSTS)  # Q uses A directly; V~ and the policy's weights do not affect this
    q_values, expected_next = np.zeros(rewards.shape), np.zeros(rewards.shape)
    for t, b in batch.rows:
        q_values[t, b] = values[t, b] + scale[b] * advantages[t, b, actions[t, b]]
        expected_next[t, b] = values[t + 1, b] + scale[b] * float(boltzmann(advantages[t + 1, b], tau[t, b]) @ advantages[t + 1, b])
    q_targets = retrace_targets(
        ratios=importance_ratios(batch),
        discounts=np.where(batch.terminated, 0.0, forward.discount),
        rewards=rewards,
        q_values=q_values,
        expected_next=expected_next,
        trace_mask=batch.row_valid,
        c_bar=COSTS.clip_c_threshold,
        lambda_=1.0,
        bootstrap="expected",
    )
    policy = value = q = 0.0
    for t, b in batch.valid_rows:
        pi = boltzmann(advantages[t, b], tau[t, b])
        policy -= of_values.policy_weights[t, b] / scale[b] * (advantages[t, b, actions[t, b]] - float(pi @ advantages[t, b]))
        value += 0.5 * ((of_values.v_targets[t, b] - values[t, b]) / scale[b]) ** 2
        q += 0.5 * ((q_targets[t, b] - q_values[t, b]) / scale[b]) ** 2

    assert isinstance(SETTINGS.loss, DiceSettings)
    found = dice(forward, SETTINGS.loss)
    told = {name: float(metric.numerator) for name, metric in found.metrics.items()}
    assert (told["loss_policy"], told["loss_value"], told["loss_q"]) == pytest.approx((policy, value, q), rel=1e-4)
    assert found.total.item() == pytest.approx(10.0 * policy + value + 10.0 * q, rel=1e-4)
    assert found.targets is not None
    np.testing.assert_allclose(found.targets.numpy()[batch.row_valid], of_values.v_targets[batch.row_valid], rtol=1e-4, atol=1e-4)
