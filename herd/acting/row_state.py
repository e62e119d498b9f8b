"""The state of E environments between rows, in training, evaluation and videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from herd.acting.policy import Rows
from herd.networks.frame_stack import RollingStack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.acting.policy import PolicyStep
    from herd.acting.temperatures import Temperatures
    from herd.components.suites.api import Observation, Transition
    from herd.config.run import NetworkSettings
    from herd.contract.spaces import EnvSpec
    from herd.contract.unroll import Array


class RowState:
    """Core state and resets, last actions and rewards, temperatures, and the number of each environment's game.

    For every row since the reset, ``rows`` must be called once before acting, and ``advance`` once after the step. Arrays are replaced,
    never written to.
    """

    def __init__(
        self, spec: EnvSpec, network: NetworkSettings, temperatures: Temperatures, *, num_environments: int, reorders: bool = True
    ) -> None:
        """``reorders``: convert stacks to the memory order that a local network reads fastest; useless without a local network."""
        self._temperatures = temperatures
        height, width, channels = spec.frame_shape
        fits = reorders and RollingStack.fits(stack=spec.frame_stack, channels=channels)
        self._rolling_stack = RollingStack(num_environments, height, width) if fits else None
        self.core_state: NDArray[np.float32] = np.zeros((num_environments, network.core.state_size()), np.float32)
        """[E, S] before the row. If the policy keeps it and was not asked for it: the newest that it told, and 0 for a game begun since."""
        self.core_reset: NDArray[np.bool_] = np.ones(num_environments, np.bool_)
        """[E]: whether the core is reset before the row."""
        self.last_actions: Array = np.zeros((num_environments, *spec.actions.shape), spec.actions.dtype)
        """[E, *shape]: 0 where the core is reset, as there is none."""
        self.last_rewards: NDArray[np.float32] = np.zeros(num_environments, np.float32)
        """[E], raw; 0 where the core is reset."""
        self.inverse_temperatures: NDArray[np.float32] | None = None
        """[E]: 1/tau of the games that the row of the last call of ``rows`` belongs to; None: tau is 1."""
        self.episode_ids: NDArray[np.int64] = np.zeros(num_environments, np.int64)
        """[E]: the number of the game that each environment is in, from 0."""
        self.index_in_episode: NDArray[np.int32] = np.zeros(num_environments, np.int32)
        """[E]: rows since the game's first."""

    def rows(self, observation: Observation, *, wants_state: bool = True) -> Rows:
        """Return the input of a policy for the row. May wait for the temperatures of games that start with it.

        ``wants_state``: whether ``core_state`` must be exact before the next row.
        """
        self.inverse_temperatures = self._temperatures.of_row(observation.game_reset)
        return Rows(
            frames=self._frames(observation),
            vectors=observation.vector,
            instructions=observation.instructions,
            game_reset=observation.game_reset,
            core_reset=self.core_reset,
            core_state=self.core_state,
            action_masks=observation.action_masks,
            last_actions=self.last_actions,
            last_rewards=self.last_rewards,
            inverse_temperatures=self.inverse_temperatures,
            wants_state=wants_state,
        )

    def advance(self, step: PolicyStep, transition: Transition) -> None:
        """Advance to the row that ``transition`` observed after the actions of ``step``."""
        game_reset = transition.observation.game_reset
        # A new training episode starts after a termination (possibly a lost life) and at the start of a game.
        # After a truncation the next row is the final observation: its value bootstraps, so its state must not reset.
        self.core_reset = transition.terminated | game_reset
        if step.core_state is not None:
            self.core_state = step.core_state
        elif self.core_reset.any():
            self.core_state = np.where(self.core_reset[:, None], np.float32(0), self.core_state)
        self.last_actions = step.actions.copy()
        self.last_actions[self.core_reset] = 0
        self.last_rewards = np.where(self.core_reset, np.float32(0), transition.rewards)
        self.episode_ids = self.episode_ids + game_reset
        self.index_in_episode = np.where(game_reset, 0, self.index_in_episode + 1).astype(np.int32)
        if transition.finished:
            self._temperatures.finished(transition.finished, self.episode_ids)

    def _frames(self, observation: Observation) -> NDArray[np.uint8] | None:
        """Return the observation's stack, logical [E, stack * C, H, W], in the fastest memory order for the network."""
        if self._rolling_stack is None:
            return observation.stack if observation.stack.size else None
        newest, game_reset = torch.from_numpy(observation.stack[:, -1]), torch.from_numpy(observation.game_reset)
        frames: NDArray[np.uint8] = self._rolling_stack.push(newest, game_reset).numpy()
        return frames
