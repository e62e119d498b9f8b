"""Central inference agrees with a policy in the actor to 1e-6, whatever is lost, forgotten or played in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from herd.acting.policy import LocalPolicy, PolicyStep, Rows
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.agent import Agent, build_agent
from herd.algorithms.distributions import FORBIDDEN
from herd.components.suites import environment_spec
from herd.components.suites.api import Observation, Transition
from herd.config.run import RunSettings
from herd.transport.context import Context
from tests.inference.serving import Served, remote_policy

NUM_ROWS = 30
ATARI = {"suite": "atari", "tasks": ["pong"], "frame_height": 44, "frame_width": 44}
CATCH = {"suite": "catch", "tasks": ["catch_instructed"], "frame_height": 6, "frame_width": 5, "frame_stack": 2, "action_repeat": 1}
CASES: dict[str, dict[str, Any]] = {
    "four grey planes": {"env": ATARI, "network": {"torso": "shallow"}},
    "four grey planes, recurrent": {
        "env": ATARI,
        "network": {"torso": "shallow", "core": {"kind": "lstm", "size": 24}, "last_action_and_reward": True},
    },
    "two planes, recurrent, instructed": {
        "env": CATCH,
        "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True, "language": True},
    },
    "one plane": {"env": {**CATCH, "frame_stack": 1}, "network": {"torso": "mlp"}},
    "several integers, masked, recurrent": {
        "env": {"suite": "gymnasium", "tasks": ["herd.components.suites.gymnasium.examples:Dials"]},
        "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True},
    },
    "integers and continuous": {
        "env": {"suite": "gymnasium", "tasks": ["tests.acting.mixed:Mixed"]},
        "network": {"torso": "mlp", "last_action_and_reward": True},
    },
}


def settings_of(case: str) -> RunSettings:
    return RunSettings.model_validate({"name": "equal", "actor": {"environments": 5}, **CASES[case]})


def peaked_agent(settings: RunSettings, seed: int = 3) -> Agent:
    """A network with a confident policy: a fresh policy head is nearly uniform and would hide differences."""
    torch.manual_seed(seed)
    agent = build_agent(settings, environment_spec(settings.env))
    assert agent.policy_head is not None
    with torch.no_grad():
        agent.policy_head.weight.mul_(200.0)
    return agent


class Games:
    """Made-up games: each environment's frames, rewards and ends depend only on its number, the row and its actions."""

    def __init__(self, settings: RunSettings, numbers: range) -> None:
        self.spec = environment_spec(settings.env)
        self._numbers = numbers
        self._row = 0
        height, width, channels = self.spec.frame_shape
        self._stack = np.zeros((len(numbers), self.spec.frame_stack * channels, height, width), np.uint8)

    def observe(self, actions: np.ndarray | None = None) -> Transition:
        count, channels = len(self._numbers), self.spec.frame_shape[2]
        acted = [[0] if actions is None else actions[e].reshape(-1).view(np.uint32).tolist() for e in range(count)]
        drawn = [np.random.default_rng([number, self._row, *acted[e]]) for e, number in enumerate(self._numbers)]
        # Games end after 3 to 9 rows, at different rows in each environment.
        reset = np.array([self._row == 0 or (self._row + number) % (3 + number) == 0 for number in self._numbers])
        self._stack = np.concatenate([self._stack[:, channels:], np.zeros_like(self._stack[:, :channels])], axis=1)
        self._stack[reset] = 0
        for environment, random in enumerate(drawn):
            if channels:
                self._stack[environment, -channels:] = random.integers(0, 256, self._stack[environment, -channels:].shape)
        length = self.spec.instruction_length
        words = np.stack([random.integers(1, 1000, length) for random in drawn]) if length else None
        lost_life = np.array([(self._row + number) % 4 == 1 for number in self._numbers])
        rewards = np.array([random.normal() * 3 for random in drawn], np.float32)
        self._row += 1
        size, choices = self.spec.vector_size, self.spec.actions.num_choices
        vectors = np.stack([random.normal(size=size).astype(np.float32) for random in drawn]) if size else None
        masks = None
        if self.spec.actions.mask_size:  # one value of each number is forbidden
            masks = np.stack([np.concatenate([np.arange(n) != random.integers(n) for n in choices]) for random in drawn])
        observation = Observation(self._stack, reset, words, vectors, masks)
        return Transition(observation, rewards, lost_life & ~reset, np.zeros(count, np.bool_), np.ones(count, np.bool_), ())


class Both:
    """A group of environments that follows the remote policy's actions; a local policy is asked for the same rows."""

    def __init__(self, settings: RunSettings, agent: Agent, remote: Any, numbers: range, *, tolerance: float = 1e-6) -> None:
        self._tolerance = tolerance
        self.distribution = agent.distribution
        self.local = LocalPolicy(agent, seed=1, precision=torch.float32)
        self.remote = remote
        self._games = Games(settings, numbers)
        spec, count = self._games.spec, len(numbers)
        self.far = RowState(spec, settings.network, Temperatures(), num_environments=count, reorders=False)
        self._near = RowState(spec, settings.network, Temperatures(), num_environments=count)
        self._observation = self._games.observe().observation
        self._asked: tuple[Any, Rows] | None = None

    def ask(self, *, wants_state: bool = True) -> None:
        """Ask both policies for the current row."""
        rows = self.far.rows(self._observation, wants_state=wants_state)
        self._asked = (self.remote.submit(rows), self._near.rows(self._observation))

    def step(self) -> PolicyStep:
        assert self._asked is not None
        ticket, rows = self._asked
        expected = self.local.submit(rows)
        said: PolicyStep = self.remote.collect(ticket)
        np.testing.assert_allclose(
            said.behaviour_parameters,
            expected.behaviour_parameters,
            rtol=0,
            atol=self._tolerance * max(1.0, np.abs(expected.behaviour_parameters).max()),
        )
        core_state = expected.core_state
        assert core_state is not None
        if said.core_state is not None:
            np.testing.assert_allclose(said.core_state, core_state, rtol=0, atol=self._tolerance)
            core_state = said.core_state
        assert np.ptp(expected.behaviour_parameters, axis=0).max() > 1e-2  # environments differ
        if self._observation.action_masks is not None:
            masks = torch.from_numpy(self._observation.action_masks)
            allowed = self.distribution.at(torch.from_numpy(expected.behaviour_parameters), mask=masks)
            assert allowed.log_prob(torch.from_numpy(said.actions)).min() > 0.1 * FORBIDDEN
        transition = self._games.observe(said.actions)
        self.far.advance(said, transition)
        # Kernels round by the size of the batch. Both go on from one state, so that this does not add up over the rows.
        self._near.advance(expected._replace(actions=said.actions, core_state=core_state), transition)
        self._observation = transition.observation
        return said


@pytest.mark.parametrize("case", CASES)
def test_remote_inference_equals_a_local_policy(context: Context, case: str) -> None:
    settings = settings_of(case)
    agent = peaked_agent(settings)
    served = Served(settings, [agent], context=context)
    clients = [served.client(size, group=group) for group, size in enumerate((2, 3))] + [served.client(2, incarnation=78)]
    firsts = (0, 2, 5)
    groups = [
        Both(settings, agent, remote_policy(client), range(first, first + size))
        for client, first, size in zip(clients, firsts, (2, 3, 2), strict=True)
    ]
    try:
        for row in range(NUM_ROWS):
            for group in groups:
                group.ask(wants_state=row % 3 == 2)
            for group in groups:
                said = group.step()
                assert said.version == (1, 10)
                # The first request includes the state, and so does its answer.
                assert (said.core_state is not None) == (settings.network.core.state_size() > 0 and (row % 3 == 2 or row == 0))
    finally:
        served.end()
        for client in clients:
            client.close()
    assert [client.num_states_sent for client in clients] == [1, 1, 1]


@pytest.mark.parametrize("case", CASES)
def test_a_restarted_service_continues_games_from_sent_states(context: Context, case: str) -> None:
    settings = settings_of(case)
    agent = peaked_agent(settings)
    served = Served(settings, [agent], context=context)
    client = served.client(3)
    group = Both(settings, agent, remote_policy(client), range(3))
    try:
        for row in range(NUM_ROWS):
            group.ask(wants_state=row in (7, 17))
            said = group.step()
            # Whoever has lost the state once may lose it again, so the answer to a request with the state has it too.
            assert (said.core_state is not None) == (settings.network.core.state_size() > 0 and row in (0, 7, 8, 17, 18))
            if row in (7, 17):
                served.restart()
    finally:
        served.end()
        client.close()
    assert client.num_states_sent >= 3  # a request that is repeated because it was late may send one more


def test_evicted_environments_send_their_state_again(context: Context) -> None:
    settings = settings_of("four grey planes, recurrent")
    agent = peaked_agent(settings)
    served = Served(settings, [agent], context=context, capacity=4)
    clients = [served.client(2, group=group) for group in range(3)]
    groups = [Both(settings, agent, remote_policy(client), range(2 * number, 2 * number + 2)) for number, client in enumerate(clients)]
    try:
        for _ in range(6):
            for group in groups:
                group.ask()
                group.step()
    finally:
        served.end()
        for client in clients:
            client.close()
    # the three take turns, so the next one is always the one that was evicted
    # (a request that is repeated because it was late may send it once more)
    assert min(client.num_states_sent for client in clients) >= 6
    assert served.sessions.num_evicted >= 2 * (3 * 6 - 2)


def test_each_agent_acts_with_its_own_weights(context: Context) -> None:
    settings = settings_of("one plane").model_copy(update={"agents": 2})
    agents = [peaked_agent(settings, seed) for seed in (3, 4)]
    served = Served(settings, agents, context=context)
    clients = [served.client(2, agent=number, group=number) for number in range(2)]
    groups = [Both(settings, agents[number], remote_policy(clients[number]), range(2)) for number in range(2)]
    try:
        for _ in range(5):
            for group in groups:
                group.ask()
            assert [group.step().version for group in groups] == [(1, 10), (1, 11)]
    finally:
        served.end()
        for client in clients:
            client.close()
