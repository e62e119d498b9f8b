"""Adam and AdamW in the learner: their schedules, and a resume that changes nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from herd.components.optimizers import OPTIMIZERS, Rates
from herd.components.optimizers.adam import AdamSettings
from herd.components.optimizers.adamw import AdamWSettings
from herd.components.optimizers.rmsprop import RMSPropSettings
from herd.config.run import RunSettings
from herd.run.checkpoints import CheckpointError
from herd.training.batch import BatchBuffer
from tests.oracles.adamw import adamw_path
from tests.patience import patient
from tests.system.whole_runs import ROOT
from tests.training.small_runs import batch_of, run_of, trainer_of

ADAMW = {"kind": "adamw", "learning_rate": 1e-2, "warmup_updates": 4, "schedule_updates": 20, "weight_decay": 0.1, "epsilon": 1e-6}


def _settings(**changes: Any) -> RunSettings:
    return run_of(**{"loss": {"kind": "dice"}, "optimizer": ADAMW, **changes})


def _batch(seed: int) -> BatchBuffer:
    return batch_of(_settings(), seed)


@pytest.mark.parametrize(
    ("saved", "resumed", "reason"),
    [
        ("rmsprop", "adam", "second_moment does not belong to adam"),
        ("adam", "muon", "does not belong to muon"),
        ("muon", "adam", "momentum does not belong to adam"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(saved: str, resumed: str, reason: str) -> None:
    before, after = (trainer_of(_settings(optimizer={"kind": kind})) for kind in (saved, resumed))
    before(_batch(0), Rates(1e-3))
    with pytest.raises(CheckpointError, match=reason):
        after.parts["optimizer"].load(before.parts["optimizer"].tensors())
    trainer_of(_settings(optimizer={"kind": saved})).parts["optimizer"].load(before.parts["optimizer"].tensors())


@pytest.mark.processes
def test_an_update_with_rmsprop_does_not_import_the_compiler() -> None:
    said = (
        "import sys; from herd.components.optimizers import Rates; from tests.training.small_runs import batch_of, run_of, trainer_of;"
        "settings = run_of(optimizer={'kind': 'rmsprop'}); trainer_of(settings)(batch_of(settings), Rates(1e-3));"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", said], cwd=ROOT, check=True, timeout=patient(60))


def test_the_first_step_of_adam_agrees_with_the_definition() -> None:
    trainer = trainer_of(run_of(optimizer={"kind": "adam", "max_gradient_norm": None}))
    before = {name: tensor.numpy().astype(np.float64) for name, tensor in trainer.weights().items()}
    trainer(batch_of(run_of()), Rates(1e-2))
    for name, parameter in trainer.agent.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad.numpy().astype(np.float64)
        # At the first step both moments equal those of the gradient itself: arXiv:1412.6980, algorithm 1.
        expected = before[name] - 1e-2 * gradient / (np.abs(gradient) + 1e-5)
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("kind", [RMSPropSettings, AdamSettings])
def test_rates_by_frames_fall_to_0_and_stay(kind: Any) -> None:
    linear = kind(learning_rate=6e-4, schedule_env_frames=200)
    for frames, expected in {0: 6e-4, 50: 4.5e-4, 100: 3e-4, 199: 3e-6, 200: 0.0, 300: 0.0}.items():
        assert linear.rates(env_frames=frames, learner_updates=7).learning_rate == pytest.approx(expected, rel=1e-9, abs=1e-18)
    constant = linear.model_copy(update={"schedule": "constant"})
    assert constant.rates(env_frames=10**9, learner_updates=0) == Rates(6e-4)


def test_warm_up_and_decay_follow_table_5() -> None:
    settings = AdamWSettings(learning_rate=5e-4)
    corners = {0: 1.25e-7, 1999: 2.5e-4, 3999: 5e-4, 4000: 5e-4, 12_000: 2.5e-4, 19_999: 3.125e-8, 20_000: 0.0, 10**9: 0.0}
    for updates, expected in corners.items():
        assert settings.rates(env_frames=0, learner_updates=updates).learning_rate == pytest.approx(expected, rel=1e-12, abs=1e-20)
    for updates, expected in {0: 0.01, 5000: 0.0075, 10_000: 0.005, 20_000: 0.0, 30_000: 0.0}.items():  # from the start
        assert settings.rates(env_frames=0, learner_updates=updates).weight_decay == pytest.approx(expected, rel=1e-9, abs=1e-18)
    at_once = AdamWSettings(learning_rate=5e-4, warmup_updates=0, schedule_updates=10)
    assert at_once.rates(env_frames=0, learner_updates=0).learning_rate == 5e-4
    with pytest.raises(ValueError, match="warmup_updates 10 must be below schedule_updates 10"):
        AdamWSettings(warmup_updates=10, schedule_updates=10)
    constant = AdamWSettings(learning_rate=1e-2, schedule="constant", warmup_updates=4, weight_decay=0.1)
    assert constant.rates(env_frames=0, learner_updates=1).learning_rate == pytest.approx(5e-3)
    assert constant.rates(env_frames=0, learner_updates=10**6) == Rates(1e-2, 0.1)


def test_adamw_with_its_schedule_agrees_with_the_oracle() -> None:
    rng = np.random.default_rng(3)
    start, num_updates = rng.normal(size=(3, 2)), 12
    gradients = [rng.normal(size=(3, 2)) * 10.0 ** rng.integers(-6, 1, size=(3, 2)) for _ in range(num_updates)]
    # The rates are large enough for both weight decay and step to show.
    settings = AdamWSettings(learning_rate=0.3, weight_decay=0.5, warmup_updates=4, schedule_updates=num_updates)
    rates = [settings.rates(env_frames=0, learner_updates=update) for update in range(num_updates)]
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = OPTIMIZERS.make(settings, [parameter])
    learning_rates, decays = zip(*rates, strict=True)
    expected = adamw_path(start, gradients, list(learning_rates), list(decays), betas=(0.9, 0.98), epsilon=1e-6)
    for gradient, rate, position in zip(gradients, rates, expected, strict=True):
        optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"] = rate
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(parameter.detach().numpy(), position, rtol=1e-10, atol=1e-12)
