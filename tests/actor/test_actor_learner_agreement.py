"""What the learner computes from an unroll is what the actor saw: restacked frames are equal bit for bit, and importance ratios are 1.

A real policy plays real environments. Games end, lives are lost and time limits are reached inside unrolls and at their borders.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from herd_actor.loop import Group
from numpy.typing import NDArray

from herd.algorithms import actor_critic
from herd.algorithms.distributions import FORBIDDEN, AppliedCategorical
from herd.components.optimizers import Rates
from herd.components.suites.api import BatchedEnvironment, Transition
from herd.config.run import RunSettings
from herd.networks.centering import RunningMoments
from herd.networks.frame_stack import restack
from herd.training.trainer import Trainer
from tests.acting.mixed import assert_masks_of_dials
from tests.acting.playing import Unroll, confident_trainer, local_policy, make_group, play_unroll
from tests.training.small_runs import buffer_of

pytestmark = pytest.mark.usefixtures("one_thread")

RECURRENT = {"core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True}
CATCH: dict[str, Any] = {"suite": "catch", "frame_stack": 4, "tasks": ("catch",), "frame_height": 6, "frame_width": 5, "action_repeat": 1}
# Time limits of a few steps make every kind of end occur within a few dozen steps.
BREAKOUT = {"suite": "atari", "tasks": ("breakout",), "fire_on_reset": True, "noop_max": 4, "max_episode_frames": 200}
MINIGRID = {"suite": "gymnasium", "tasks": ("minigrid:MiniGrid-Empty-5x5-v0",), "max_episode_steps": 10}
BABYAI = {"suite": "gymnasium", "tasks": ("minigrid:BabyAI-GoToLocalS5N2-v0",), "max_episode_steps": 10, "instruction_key": "mission"}
PLAIN = {"suite": "gymnasium"}
DIALS = "herd.components.suites.gymnasium.examples:Dials"
CASES: dict[str, dict[str, Any]] = {
    "catch": {"env": CATCH, "network": {"torso": "mlp"}},
    "catch one frame": {"env": {**CATCH, "frame_stack": 1}, "network": {"torso": "mlp"}},
    "catch truncated, recurrent": {"env": {**CATCH, "max_episode_frames": 4}, "network": {"torso": "mlp", **RECURRENT}},
    "catch instructed": {
        "env": {**CATCH, "tasks": ("catch", "catch_instructed")},
        "network": {"torso": "mlp", "language": True, "last_action_and_reward": True},
    },
    "breakout": {"env": BREAKOUT, "network": {"torso": "shallow"}},
    "breakout recurrent": {"env": BREAKOUT, "network": {"torso": "shallow", **RECURRENT}},
    "vectors": {
        "env": {"suite": "gymnasium", "tasks": ("CartPole-v1",), "max_episode_steps": 15},
        "network": {"torso": "mlp", **RECURRENT},
    },
    "vectors and pictures": {
        "env": {**MINIGRID, "vector_keys": ("direction",), "image_key": "image", "instruction_key": "mission", "frame_stack": 2},
        "network": {"torso": "mlp", "language": True},
    },
    "missions": {
        "env": {**BABYAI, "vector_keys": ("image", "direction")},
        "network": {"torso": "mlp", "language": True, **RECURRENT},
    },
    "breakout in colour": {"env": {**BREAKOUT, "grayscale": False, "frame_stack": 2}, "network": {"torso": "shallow"}},
}
ACTION_CASES: dict[str, dict[str, Any]] = {
    "several integers, masked": {"env": {**PLAIN, "tasks": (DIALS,), "kwargs": {"steps": 9}}, "network": {"torso": "mlp", **RECURRENT}},
    "one integer, masked": {"env": {**PLAIN, "tasks": ("Taxi-v4",), "max_episode_steps": 11}, "network": {"torso": "mlp"}},
    "continuous": {"env": {**PLAIN, "tasks": ("Pendulum-v1",), "max_episode_steps": 11}, "network": {"torso": "mlp", **RECURRENT}},
    "squashed": {
        "env": {**PLAIN, "tasks": ("Pendulum-v1",), "max_episode_steps": 11},
        "network": {"torso": "mlp"},
        "action": {"kind": "normal", "bounds": "tanh", "deviation": "network"},
    },
    "integers and continuous": {"env": {**PLAIN, "tasks": ("tests.acting.mixed:Mixed",)}, "network": {"torso": "mlp", **RECURRENT}},
}
CASES |= ACTION_CASES
UNROLL_LENGTH = 7  # Catch's games of 5 + 1 steps end at every row sooner or later


@dataclasses.dataclass
class Played:
    """The unrolls that an actor recorded, and the stacks that it saw while it played."""

    settings: RunSettings
    trainer: Trainer
    unrolls: list[Unroll]
    stacks: list[NDArray[np.uint8]]
    """Array [T + 1, E, S * C, H, W] of each unroll."""


def _settings(case: str) -> RunSettings:
    return RunSettings.model_validate(
        {
            **CASES[case],
            "algorithm": {"unroll_length": UNROLL_LENGTH, "reward_shaping": "soft_asymmetric"},
            "actor": {"environments": 3},
            "learner": {"batch_size": 3, "queue_batches": 4, "micro_batch_size": 2},
        }
    )


class _GenerousGames:
    """Adds rewards, because these games pay rarely: the network must see a clipped reward at every kind of row."""

    def __init__(self, environments: BatchedEnvironment) -> None:
        self._environments = environments
        self._random = np.random.default_rng(6)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environments, name)

    def step(self, actions: NDArray[np.int32]) -> Transition:
        transition = self._environments.step(actions)
        rewards = self._random.uniform(-2, 2, len(actions)).astype(np.float32) * transition.valid
        return dataclasses.replace(transition, rewards=rewards)


def _play(case: str, num_unrolls: int) -> Played:
    settings = _settings(case)
    trainer = confident_trainer(settings)
    if trainer.agent.moments is not None:
        trainer.agent.moments.mean.fill_(0.03)
        trainer.agent.moments.deviation.fill_(0.4)
    policy = local_policy(trainer)
    group = make_group(settings, settings.actor.environments, wrap=_GenerousGames)
    played = Played(settings, trainer, [], [])
    for _ in range(num_unrolls):
        stacks = [group.observation.stack.copy()]

        def note(_: Group, step: Transition, stacks: list[NDArray[np.uint8]] = stacks) -> None:
            stacks.append(step.observation.stack.copy())

        played.unrolls.append(play_unroll(settings, [group], policy, on_step=note))
        played.stacks.append(np.stack(stacks))
    group.environments.close()
    return played


@pytest.fixture(scope="module")
def played() -> dict[str, Played]:
    """Play each case once."""
    torch.set_num_threads(1)
    return {case: _play(case, 30 if "breakout" in case else 12) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_importance_ratios_are_1_with_the_actors_weights(played: dict[str, Played], case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = played[case]
    assert (run.trainer.agent.moments is not None) == (case == "vectors")
    # These unrolls are played with the same weights, so the learner must not update its statistics in between.
    monkeypatch.setattr(RunningMoments, "update", lambda *_: None)
    for unroll in run.unrolls:
        with mock.patch("herd.components.losses.impala.loss.actor_critic_loss", wraps=actor_critic.actor_critic_loss) as loss:
            losses = run.trainer(buffer_of(run.settings, unroll), Rates(0.0)).losses
        valid = 0
        for call in loss.call_args_list:  # one per micro-batch
            arguments = call.kwargs
            target, behaviour = (arguments[name].log_prob(arguments["actions"]).detach() for name in ("target", "behaviour"))
            # The ratios are 1 at every row, including rows that only reset a game.
            torch.testing.assert_close((target - behaviour).exp(), torch.ones_like(target), rtol=0, atol=1e-4)
            target_policy, behaviour_policy = arguments["target"], arguments["behaviour"]
            torch.testing.assert_close(target_policy.kl(behaviour_policy).detach(), torch.zeros_like(target), rtol=0, atol=1e-6)
            if isinstance(target_policy, AppliedCategorical):
                policies = (policy.log_policy.detach() for policy in (target_policy, behaviour_policy))
                torch.testing.assert_close(*policies, rtol=1e-4, atol=1e-4)
            assert target.min() > 0.1 * FORBIDDEN  # the actions are those that the mask of their own row allows
            valid += int(arguments["row_valid"].sum())
        assert valid == int(unroll["row_valid"].sum())
        assert losses["mean_rho"].value == pytest.approx(1.0, abs=1e-4)


def test_each_row_has_the_mask_of_its_observation(played: dict[str, Played]) -> None:
    for unroll in played["several integers, masked"].unrolls:
        assert_masks_of_dials(unroll)


@pytest.mark.parametrize("case", [case for case in CASES if case not in {"vectors", "missions", *ACTION_CASES}])
def test_restacked_frames_equal_the_actors_bit_for_bit(played: dict[str, Played], case: str) -> None:
    for unroll, stacks in zip(played[case].unrolls, played[case].stacks, strict=True):
        batch = buffer_of(played[case].settings, unroll).batch
        assert batch.history_frames is not None
        assert batch.frames is not None
        assert torch.equal(restack(batch.history_frames, batch.frames, batch.game_reset), torch.from_numpy(stacks))


def test_the_cases_contain_every_kind_of_episode_end(played: dict[str, Played]) -> None:
    """The two tests above prove little unless the cases contain every kind of end."""
    ends: dict[str, dict[str, int]] = {}
    for case, run in played.items():
        joined = {
            name: np.concatenate([unroll[name] for unroll in run.unrolls], axis=1) for name in ("terminated", "truncated", "row_valid")
        }
        lost_lives = joined["terminated"][:, :-1] & joined["row_valid"][:, 1:]
        ends[case] = {
            "terminated": int(joined["terminated"].sum()),
            "truncated": int(joined["truncated"].sum()),
            "resets": int((~joined["row_valid"]).sum()),
            "lives": int(lost_lives.sum()),
            "reset at row 0": int(sum(unroll["game_reset"][:, 0].sum() for unroll in run.unrolls[1:])),
        }
    assert ends["catch"]["terminated"] > 20
    assert ends["catch"]["reset at row 0"] > 0
    assert ends["catch truncated, recurrent"]["truncated"] > 20
    assert min(ends["vectors"]["terminated"], ends["vectors"]["truncated"], ends["vectors and pictures"]["truncated"]) > 0
    for case in ("breakout", "breakout recurrent", "breakout in colour"):
        assert min(ends[case]["lives"], ends[case]["truncated"], ends[case]["resets"]) > 0, (case, ends)


@pytest.mark.parametrize(
    "field",
    ["core_reset", "last_action", "last_reward", "initial_core_state", "game_reset", "actions", "rewards", "observations", "instructions"],
)
def test_corrupting_any_field_changes_the_ratios(played: dict[str, Played], field: str) -> None:
    """The network reads all of these fields; corrupting any one of them must change the ratios."""
    run = played[{"observations": "vectors", "instructions": "missions"}.get(field, "catch truncated, recurrent")]
    rhos = []
    for unroll in run.unrolls[1:]:
        wrong = unroll[field]
        spoiled = ~wrong if wrong.dtype == bool else (wrong + 1) % 3 if wrong.dtype == np.int32 else wrong + np.ones((), wrong.dtype)
        buffer = buffer_of(run.settings, {**unroll, field: spoiled})
        rhos.append(run.trainer(buffer, Rates(0.0)).losses["mean_rho"].value)
    assert min(rhos) < 0.999
