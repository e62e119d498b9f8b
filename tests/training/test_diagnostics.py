"""The health metrics of an update against loops over its rows; computing them changes nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from herd.components.torsos.shallow.strided import StridedTorso
from herd.training.diagnostics import LayerUnits
from herd.training.trainer import Trainer
from tests.training.small_runs import RUN, STEP, batch_of, buffer_of, run_of, trainer_of, unrolls_of

LARGE_STEP = STEP._replace(learning_rate=0.05)
LEARNER = {**RUN["learner"], "health_interval_updates": 1}


def log_policies(trainer: Trainer, buffer: Any) -> np.ndarray:
    """Log probabilities [T, B, A] of the whole batch at once."""
    seen = trainer._forward(buffer.batch, trainer.agent, trainer._statistics.current, torch.tensor(1))
    return seen.parameters[:-1].detach().double().log_softmax(dim=-1).numpy()


def test_kl_sample_size_and_explained_variance_agree_with_loops() -> None:
    settings = run_of(learner=LEARNER)
    trainer, arrays = trainer_of(settings), unrolls_of(settings)
    arrays["behaviour_parameters"][...] = np.random.default_rng(5).normal(size=arrays["behaviour_parameters"].shape)
    buffer = buffer_of(settings, arrays)
    rows = [(t, b) for t, b in np.ndindex(arrays["row_valid"].T.shape) if arrays["row_valid"][b, t]]
    seen = trainer._forward(buffer.batch, trainer.agent, trainer._statistics.current, torch.tensor(1))
    output = trainer._loss(seen)
    assert output.targets is not None
    targets, values = output.targets.double().numpy(), seen.values[:-1].detach().double().numpy()
    before = log_policies(trainer, buffer)
    health = trainer(buffer, LARGE_STEP).health
    after = log_policies(trainer, buffer)
    assert health is not None
    kl = np.mean([sum(math.exp(p) * (p - q) for p, q in zip(before[row], after[row], strict=True)) for row in rows])
    assert kl > 1e-4
    assert health.update_kl == pytest.approx(kl, rel=1e-3)
    ratios = []
    for t, b in rows:
        action, logits = int(arrays["actions"][b, t]), arrays["behaviour_parameters"][b, t].astype(np.float64)
        ratios.append(math.exp(before[t, b, action] - logits[action] + math.log(sum(math.exp(logit) for logit in logits))))
    assert health.effective_sample_size == pytest.approx(sum(ratios) ** 2 / (len(rows) * sum(ratio**2 for ratio in ratios)), rel=1e-4)
    assert health.effective_sample_size is not None
    assert 0.1 < health.effective_sample_size < 0.9
    targeted = np.array([targets[row] for row in rows])
    errors = np.array([targets[row] - values[row] for row in rows])
    assert health.explained_variance == pytest.approx(1 - errors.var() / targeted.var(), rel=1e-3)


def test_on_policy_the_effective_sample_size_is_1() -> None:
    settings = run_of(learner=LEARNER, algorithm={"unroll_length": 4, "discount": 0.0})
    trainer, arrays = trainer_of(settings), unrolls_of(settings)
    arrays["rewards"][...] = 0.25
    arrays["behaviour_parameters"][...] = log_policies(trainer, buffer_of(settings, arrays)).transpose(1, 0, 2)
    health = trainer(buffer_of(settings, arrays), STEP).health
    assert health is not None
    assert health.effective_sample_size == pytest.approx(1.0, abs=1e-5)
    assert health.explained_variance is None


def test_dead_and_always_active_units_are_counted_by_layer() -> None:
    env = {"suite": "atari", "tasks": ["pong"], "frame_height": 40, "frame_width": 44}
    settings = run_of(env=env, network={"torso": "shallow", "input_centering": "filters"}, learner=LEARNER, actor={"environments": 2})
    trainer = trainer_of(settings)
    torso = trainer.agent.torso
    assert isinstance(torso, StridedTorso)
    with torch.no_grad():
        assert torso.pixels.bias is not None
        assert torso.dense.bias is not None
        torso.pixels.bias[:3] = -1e4
        torso.pixels.bias[3:5] = 1e4
        torso.dense.bias[:100] = -1e9
    health = trainer(batch_of(settings), STEP._replace(learning_rate=0.0)).health
    assert health is not None
    first, second, dense = health.layers
    assert first.kind == second.kind == "filters"
    assert (first.total, second.total) == (16, 32)
    assert (first.dead, first.always_on) == (3, 2)
    assert dense.kind == "units"
    assert dense.total == 256
    assert dense.dead >= 100


def test_a_unit_active_once_in_a_batch_is_not_dead() -> None:
    settings = run_of(network={"torso": "mlp"}, learner={**LEARNER, "micro_batch_size": 2})
    trainer, arrays = trainer_of(settings), unrolls_of(settings)
    arrays["frames"][...] = 0
    arrays["frames"][3, 1] = 255  # one plane of one unroll; it stays in the stack for some rows
    arrays["history_frames"][...] = 0
    first: Any = trainer.agent.torso.first
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.weight[128:] = -1.0
        first.bias[:128] = -1.0
        first.bias[128:] = 1.0
    health = trainer(buffer_of(settings, arrays), STEP._replace(learning_rate=0.0)).health
    assert health is not None
    assert health.layers[0] == LayerUnits("units", 256, dead=0, always_on=0)


def test_health_is_measured_at_intervals_without_changing_updates() -> None:
    plain, watched = trainer_of(run_of()), trainer_of(run_of(learner={**LEARNER, "health_interval_updates": 2}))
    looked = []
    for seed in range(4):
        expected, found = plain(batch_of(run_of(), seed), STEP), watched(batch_of(run_of(), seed), STEP)
        assert (found.losses, found.gradient_norm) == (expected.losses, expected.gradient_norm)
        looked.append(found.health is not None)
    assert looked == [False, True, False, True]
    assert all(torch.equal(a, b) for a, b in zip(plain.agent.parameters(), watched.agent.parameters(), strict=True))
