"""One batched step of a trained policy, with the recurrent state between calls handled as an actor handles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from herd.algorithms.rewards import shape_rewards
from herd.algorithms.sampling import sample_actions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.settings import RunSettings
    from herd.envs.api import Observation
    from herd.evaluation.temperatures import GamesTemperatures
    from herd.networks.agent import Agent


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """What the policy says to one row of E environments."""

    actions: NDArray[np.int32]
    """[E]."""
    behaviour_logits: NDArray[np.float32]
    """[E, A], as sampled from."""
    values: NDArray[np.float32]
    """[E], of shaped and discounted rewards to come."""


class ActingPolicy(Protocol):
    """Whatever chooses actions for E environments at once."""

    def act(
        self,
        observation: Observation,
        core_reset: NDArray[np.bool_],
        last_actions: NDArray[np.int32],
        last_rewards: NDArray[np.float32],
    ) -> PolicyStep:
        """Choose for one row: core_reset [E], last_actions [E] (-1 none), raw last_rewards [E]."""
        ...


class PolicyRunner:
    """Samples from an agent's policy, or takes its most probable action; carries the core state of E environments."""

    def __init__(
        self,
        agent: Agent,
        settings: RunSettings,
        *,
        num_environments: int,
        generator: torch.Generator,
        precision: torch.dtype = torch.float32,
        greedy: bool = False,
        temperatures: GamesTemperatures | None = None,
    ) -> None:
        """``temperatures`` None: tau = 1."""
        self._agent = agent.for_inference(precision)
        self._shaping = settings.algorithm.reward_shaping
        self._generator = generator
        self._greedy = greedy
        self._temperatures = temperatures
        self._core_state = agent.initial_core_state(num_environments)

    @torch.inference_mode()
    def act(
        self,
        observation: Observation,
        core_reset: NDArray[np.bool_],
        last_actions: NDArray[np.int32],
        last_rewards: NDArray[np.float32],
    ) -> PolicyStep:
        """See `ActingPolicy.act`."""
        instructions = None if observation.instructions is None else torch.from_numpy(observation.instructions).unsqueeze(0)
        output, self._core_state = self._agent(
            torch.from_numpy(observation.stack).unsqueeze(0),
            torch.from_numpy(core_reset).unsqueeze(0),
            self._core_state,
            torch.from_numpy(last_actions.astype(np.int64)).unsqueeze(0),
            shape_rewards(torch.from_numpy(last_rewards), self._shaping).unsqueeze(0),
            instructions,
        )
        logits = output.policy_logits[0]
        inverse_temperature = None
        if self._temperatures is not None:
            inverse_temperature = torch.from_numpy(self._temperatures.of_row(observation.game_reset))
        actions = logits.argmax(dim=-1) if self._greedy else sample_actions(logits, self._generator, inverse_temperature)
        return PolicyStep(actions.numpy().astype(np.int32), logits.numpy(), output.values[0].numpy())
