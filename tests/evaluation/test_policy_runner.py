import numpy as np
import pytest
import torch

from herd.algorithms.rewards import shape_rewards
from herd.config.settings import RunSettings
from herd.envs.api import Observation
from herd.envs.make import environment_spec, make_environments
from herd.evaluation.play import Play
from herd.evaluation.policy import PolicyRunner
from herd.networks.agent import Agent


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


RECURRENT = catch_settings(core="lstm", core_size=16, last_action_and_reward=True, language=True)


def make_agent(settings: RunSettings) -> Agent:
    torch.manual_seed(3)
    agent = Agent(spec=environment_spec(settings.env), network=settings.network, head=settings.loss.head)
    with torch.no_grad():  # a fresh policy head is nearly uniform and would hide differences
        agent.policy_head.weight.mul_(200.0)
    return agent


def test_playing_row_by_row_equals_the_learners_pass_over_the_whole_unroll() -> None:
    settings = RECURRENT
    agent = make_agent(settings)
    environments = make_environments(settings.env, num_environments=4, first_slot=0, seed=2, num_threads=1)
    runner = PolicyRunner(agent, settings, num_environments=4, generator=torch.Generator().manual_seed(7))
    play = Play(environments, runner)
    steps = []
    for _ in range(20):
        step = play.step()
        steps.append((step.observation.stack.copy(), step.observation.game_reset.copy(), np.array(step.observation.instructions), step))

    # The learner's view, from the unroll's fields alone: what row t is told follows from actions, rewards and ends before it.
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
            agent.initial_core_state(4),
            last_actions,
            last_rewards,
            torch.from_numpy(np.stack([words for _, _, words, _ in steps])),
        )
    assert core_reset.any(dim=1).sum() > 3  # games ended on the way
    np.testing.assert_allclose(np.stack([step.choice.behaviour_logits for *_, step in steps]), output.policy_logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.stack([step.choice.values for *_, step in steps]), output.values, rtol=1e-4, atol=1e-5)
    assert output.policy_logits.std() > 0.05


def row(settings: RunSettings, count: int) -> Observation:
    environments = make_environments(settings.env, num_environments=count, first_slot=0, seed=2, num_threads=1)
    return environments.reset()


def act(runner: PolicyRunner, observation: Observation, last_reward: float = 0.0) -> np.ndarray:
    count = len(observation.game_reset)
    fresh = np.zeros(count, np.bool_)
    step = runner.act(observation, fresh, np.full(count, -1, np.int32), np.full(count, last_reward, np.float32))
    assert step.actions.dtype == np.int32
    return step.actions


def test_actions_are_sampled_in_proportion_to_the_policy() -> None:
    settings = catch_settings()
    agent = make_agent(settings)
    with torch.no_grad():
        agent.policy_head.weight.zero_()
        agent.policy_head.bias.copy_(torch.tensor([0.7, 0.2, 0.1]).log())
    count = 4000
    observation = row(settings, count)
    runner = PolicyRunner(agent, settings, num_environments=count, generator=torch.Generator().manual_seed(1))
    shares = np.bincount(act(runner, observation), minlength=3) / count
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.03)
    greedy = PolicyRunner(agent, settings, num_environments=count, generator=torch.Generator().manual_seed(1), greedy=True)
    assert set(act(greedy, observation)) == {0}


def test_the_generator_alone_decides_the_draws() -> None:
    settings = catch_settings()
    agent, observation = make_agent(settings), row(settings, 200)
    first, again, other = (
        act(PolicyRunner(agent, settings, num_environments=200, generator=torch.Generator().manual_seed(seed)), observation)
        for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_the_network_is_told_shaped_rewards() -> None:
    settings = catch_settings(last_action_and_reward=True)
    agent, observation = make_agent(settings), row(settings, 4)

    def logits(reward: float) -> np.ndarray:
        runner = PolicyRunner(agent, settings, num_environments=4, generator=torch.Generator().manual_seed(1))
        step = runner.act(observation, np.zeros(4, np.bool_), np.zeros(4, np.int32), np.full(4, reward, np.float32))
        return step.behaviour_logits

    np.testing.assert_array_equal(logits(50.0), logits(1.0))  # clipped
    assert (logits(1.0) != logits(0.5)).any()


def test_the_core_carries_over_until_it_is_reset() -> None:
    settings = RECURRENT
    agent, observation = make_agent(settings), row(settings, 4)
    runner = PolicyRunner(agent, settings, num_environments=4, generator=torch.Generator().manual_seed(1))
    nothing, zeros = np.full(4, -1, np.int32), np.zeros(4, np.float32)
    first = runner.act(observation, np.ones(4, np.bool_), nothing, zeros).behaviour_logits
    second = runner.act(observation, np.array([True, False, False, True]), nothing, zeros).behaviour_logits
    same = (first == second).all(axis=1)
    assert same.tolist() == [True, False, False, True]


def test_it_computes_in_the_precision_of_the_actors() -> None:
    settings = catch_settings()
    agent, observation = make_agent(settings), row(settings, 4)
    inputs = (observation, np.zeros(4, np.bool_), np.full(4, -1, np.int32), np.zeros(4, np.float32))
    exact, rounded = (
        PolicyRunner(agent, settings, num_environments=4, generator=torch.Generator(), precision=precision).act(*inputs).behaviour_logits
        for precision in (torch.float32, torch.bfloat16)
    )
    assert (exact != rounded).any()
    assert exact == pytest.approx(rounded, rel=0.1, abs=0.1)
