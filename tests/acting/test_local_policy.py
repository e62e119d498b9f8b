import numpy as np
import pytest
import torch

from herd.acting.policy import LocalPolicy, PolicyStep, Rows
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.agent import Agent, build_agent
from herd.algorithms.rewards import shape_rewards
from herd.components.cores.lstm import LSTMSettings
from herd.components.suites import environment_spec, make_environments
from herd.config.run import RunSettings
from herd.evaluation.play import Play


def catch_settings(**network: object) -> RunSettings:
    return RunSettings.model_validate(
        {
            "env": {
                "suite": "catch",
                "tasks": ["catch", "catch_instructed"],
                "frame_height": 6,
                "frame_width": 5,
                "frame_stack": 2,
                "action_repeat": 1,
            },
            "network": {"torso": "mlp", **network},
            "actor": {"environments": 4},
        }
    )


RECURRENT = catch_settings(core=LSTMSettings(size=16), last_action_and_reward=True, language=True)


def make_agent(settings: RunSettings) -> Agent:
    torch.manual_seed(3)
    agent = build_agent(settings, environment_spec(settings.env))
    assert agent.policy_head is not None
    with torch.no_grad():  # a fresh policy head is nearly uniform and would hide differences
        agent.policy_head.weight.mul_(200.0)
    return agent


def test_acting_row_by_row_equals_the_learners_pass_over_the_unroll() -> None:
    settings = RECURRENT
    agent = make_agent(settings)
    environments = make_environments(settings.env, num_environments=4, first_slot=0, seed=2, num_threads=1)
    state = RowState(environments.spec, settings.network, Temperatures(), num_environments=4)
    play = Play(environments, LocalPolicy(agent, seed=7, precision=torch.float32), state)
    steps = []
    for _ in range(20):
        step = play.step()
        steps.append((step.observation.stack.copy(), step.observation.game_reset.copy(), np.array(step.observation.instructions), step))

    # The learner's view, computed from the unroll's fields alone: the inputs of row t follow from the actions, rewards and ends before it.
    terminated = torch.from_numpy(np.stack([step.transition.terminated for *_, step in steps]))
    rewards = shape_rewards(torch.from_numpy(np.stack([step.transition.rewards for *_, step in steps])), "clip")
    actions = torch.from_numpy(np.stack([step.choice.actions for *_, step in steps])).long()
    core_reset = torch.from_numpy(np.stack([reset for _, reset, _, _ in steps]))
    core_reset[1:] |= terminated[:-1]
    last_actions = torch.full_like(actions, -1)
    last_actions[1:] = actions[:-1].masked_fill(core_reset[1:], -1)
    last_rewards = torch.zeros_like(rewards)
    last_rewards[1:] = rewards[:-1].masked_fill(core_reset[1:], 0.0)
    with torch.no_grad():
        output, _ = agent(
            torch.from_numpy(np.stack([stack for stack, *_ in steps])),
            core_reset,
            agent.core.initial_state(4),
            last_actions,
            last_rewards,
            torch.from_numpy(np.stack([words for _, _, words, _ in steps])),
        )
    assert core_reset.any(dim=1).sum() > 3  # some games ended on the way
    np.testing.assert_allclose(np.stack([step.choice.behaviour_parameters for *_, step in steps]), output.parameters, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.stack([step.choice.values for *_, step in steps]), output.values, rtol=1e-4, atol=1e-5)
    assert output.parameters.std() > 0.05


def first_rows(settings: RunSettings, count: int) -> Rows:
    environments = make_environments(settings.env, num_environments=count, first_slot=0, seed=2, num_threads=1)
    return RowState(environments.spec, settings.network, Temperatures(), num_environments=count).rows(environments.reset())


def ask(agent: Agent, rows: Rows, *, seed: int = 1, precision: torch.dtype = torch.float32, greedy: bool = False) -> PolicyStep:
    policy = LocalPolicy(agent, seed=seed, precision=precision, greedy=greedy)
    return policy.collect(policy.submit(rows))


def test_actions_are_sampled_in_proportion_to_the_policy() -> None:
    settings = catch_settings()
    agent = make_agent(settings)
    assert agent.policy_head is not None
    with torch.no_grad():
        agent.policy_head.weight.zero_()
        agent.policy_head.bias.copy_(torch.tensor([0.7, 0.2, 0.1]).log())
    count = 4000
    rows = first_rows(settings, count)
    step = ask(agent, rows)
    assert step.actions.dtype == np.int32
    np.testing.assert_allclose(np.bincount(step.actions, minlength=3) / count, [0.7, 0.2, 0.1], atol=0.03)
    assert set(ask(agent, rows, greedy=True).actions) == {0}
    # 1/tau of each row scales the logits that are sampled from, but not the logits that are returned.
    hot = ask(agent, rows._replace(inverse_temperatures=np.repeat(np.array([0.0, 3.0], np.float32), count // 2)))
    shares = np.array([np.bincount(half, minlength=3) for half in np.split(hot.actions, 2)]) / (count // 2)
    cubes = np.array([0.7, 0.2, 0.1]) ** 3
    np.testing.assert_allclose(shares, [[1 / 3] * 3, cubes / cubes.sum()], atol=0.04)
    np.testing.assert_array_equal(hot.behaviour_parameters, step.behaviour_parameters)


def test_draws_depend_only_on_the_seed() -> None:
    settings = catch_settings()
    agent, rows = make_agent(settings), first_rows(settings, 200)
    first, again, other = (ask(agent, rows, seed=seed).actions for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_the_last_reward_is_clipped_for_the_network() -> None:
    settings = catch_settings(last_action_and_reward=True)
    agent, rows = make_agent(settings), first_rows(settings, 4)

    def logits(reward: float) -> np.ndarray:
        return ask(agent, rows._replace(last_rewards=np.full(4, reward, np.float32))).behaviour_parameters

    np.testing.assert_array_equal(logits(50.0), logits(1.0))  # clipped
    assert (logits(1.0) != logits(0.5)).any()


def test_the_core_continues_from_its_state_unless_reset() -> None:
    agent, rows = make_agent(RECURRENT), first_rows(RECURRENT, 4)
    first = ask(agent, rows)
    assert first.core_state is not None
    second = ask(agent, rows._replace(core_state=first.core_state, core_reset=np.array([True, False, False, True])))
    same = (first.behaviour_parameters == second.behaviour_parameters).all(axis=1)
    assert same.tolist() == [True, False, False, True]


def test_the_policy_computes_in_the_given_precision() -> None:
    settings = catch_settings()
    agent, rows = make_agent(settings), first_rows(settings, 4)
    exact, rounded = (ask(agent, rows, precision=precision).behaviour_parameters for precision in (torch.float32, torch.bfloat16))
    assert (exact != rounded).any()
    assert exact == pytest.approx(rounded, rel=0.1, abs=0.1)


def test_without_a_core_the_empty_state_is_passed_through() -> None:
    """Otherwise each row would wrap the row before it, and memory would grow."""
    settings = catch_settings()
    rows = first_rows(settings, 4)
    assert ask(make_agent(settings), rows).core_state is rows.core_state
