"""Updates on every kind of action, with what composes with all of them, and what a mask keeps from being learned."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from herd.algorithms import actor_critic
from herd.components.suites import environment_spec
from herd.config.run_contract import objection_of_parts
from tests.training.small_runs import STEP, buffer_of, run_of, trainer_of, unrolls_of, values_of

torch.set_num_threads(1)

DIALS = {"env": {"suite": "gymnasium", "tasks": ["herd.components.suites.gymnasium.examples:Dials"]}}
KINDS: dict[str, dict[str, Any]] = {
    "one masked integer": {"env": {"suite": "gymnasium", "tasks": ["Taxi-v4"]}},
    "several masked integers": DIALS,
    "continuous": {"env": {"suite": "gymnasium", "tasks": ["Pendulum-v1"]}, "action": {"kind": "normal", "deviation": "network"}},
    "squashed": {"env": {"suite": "gymnasium", "tasks": ["Pendulum-v1"]}, "action": {"kind": "normal", "bounds": "tanh"}},
    "mixed": {"env": {"suite": "gymnasium", "tasks": ["tests.acting.mixed:Mixed"]}},
}
COMPOSITIONS: dict[str, dict[str, Any]] = {
    "laser": {
        "loss": {"trust_region": "behaviour", "trust_region_threshold": 100.0},
        "replay": {"kind": "local", "fraction": 0.4, "capacity_unrolls": 10, "minimum_fill_unrolls": 1},
        "value_scaling": {"kind": "popart"},
    },
    "appo, burn-in": {"loss": {"ratio_clip": 0.2, "correction": "v_trace"}, "algorithm": {"unroll_length": 5, "burn_in": 2}},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_an_update_makes_actions_of_good_steps_more_probable(kind: str, composition: str) -> None:
    """Every other step earns 1 and the rest -1, so that repeated updates on one batch must tell their actions apart."""
    settings = run_of(**KINDS[kind], **COMPOSITIONS[composition])
    trainer = trainer_of(settings)
    arrays = unrolls_of(settings)
    for name in ("terminated", "row_valid"):
        arrays[name][...] = True  # every step is a game, whose return is its reward
    arrays["behaviour_parameters"][...] = 0.0
    if kind == "squashed":
        arrays["actions"][...] = np.tanh(arrays["actions"])
    is_good = np.arange(arrays["rewards"].size).reshape(arrays["rewards"].shape) % 2 == 0
    arrays["rewards"][...] = np.where(is_good, 1.0, -1.0)
    buffer = buffer_of(settings, arrays)
    gaps = []
    for _ in range(12):
        with mock.patch("herd.components.losses.impala.loss.actor_critic_loss", wraps=actor_critic.actor_critic_loss) as loss:
            told = values_of(trainer(buffer, STEP).losses)
        assert np.isfinite(list(told.values())).all()
        calls = [call.kwargs for call in loss.call_args_list]  # one per micro-batch
        gaps.append(sum(float((each["rewards"] * each["target"].log_prob(each["actions"]).detach()).sum()) for each in calls))
    assert gaps[-1] > gaps[0] + 0.5
    assert all(torch.isfinite(parameter).all() for parameter in trainer.agent.parameters())


def test_a_forbidden_action_is_not_learned_about() -> None:
    settings = run_of(**DIALS)
    trainer = trainer_of(settings)
    head = trainer.agent.policy_head
    assert head is not None
    arrays = unrolls_of(settings)
    arrays["action_masks"][..., 4] = False  # the second dial may not stay
    arrays["actions"][..., 1] = 2 * (arrays["actions"][..., 1] > 0)
    arrays["behaviour_parameters"][..., 4] = 7.0  # what the network gave it does not matter either
    before = head.weight.detach().clone(), head.bias.detach().clone()
    told = values_of(trainer(buffer_of(settings, arrays), STEP).losses)
    assert np.isfinite(list(told.values())).all()
    for now, then in zip((head.weight, head.bias), before, strict=True):
        moved = (now.detach() - then).reshape(9, -1).abs().amax(dim=1)
        assert moved[4] == 0.0
        assert moved[[0, 1, 2, 3, 5, 6, 7, 8]].min() > 0.0


def test_squashing_needs_finite_bounds() -> None:
    unbounded = run_of(env=KINDS["mixed"]["env"], action={"kind": "product", "bounds": "tanh"})
    objection = objection_of_parts(unbounded, environment_spec(unbounded.env))
    assert objection is not None
    assert "action.bounds tanh needs two finite bounds for each number" in objection
