"""The actor's copy of the policy: batched inference on the CPU over E environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from herd.algorithms.rewards import shape_rewards
from herd.algorithms.sampling import sample_actions
from herd.checkpoints.weights import load_into
from herd.networks.agent import Agent
from herd.networks.frame_stack import RollingStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from herd.config.contract import EnvSpec
    from herd.config.settings import RunSettings
    from herd.envs.api import Observation


class Policy:
    """Samples actions from the newest weights it was given; carries the recurrent state, and the stack of frames, between calls.

    So every row must be acted on, in order, from the one with which the environments were reset.
    """

    def __init__(self, settings: RunSettings, spec: EnvSpec, *, num_environments: int, precision: torch.dtype, seed: int) -> None:
        self._agent = Agent(spec=spec, network=settings.network, head=settings.loss.head).for_inference(precision)
        self._shaping = settings.algorithm.reward_shaping
        self._generator = torch.Generator().manual_seed(seed)
        self._core_state = self._agent.initial_core_state(num_environments)
        height, width, channels = spec.frame_shape
        fits = RollingStack.fits(stack=spec.frame_stack, channels=channels)
        self._rolling_stack = RollingStack(num_environments, height, width) if fits else None
        self._has_core = settings.network.core != "none"

    @property
    def core_state(self) -> NDArray[np.float32] | None:
        """[E, 2, core_size] before the next row; None without a recurrent core."""
        return self._core_state.numpy() if self._has_core else None

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Use new weights from the next call on.

        Raises:
            CheckpointError: tensors of another network; the old weights stay.
        """
        load_into(self._agent, tensors)

    @torch.inference_mode()
    def act(
        self,
        observation: Observation,
        core_reset: NDArray[np.bool_],
        last_actions: NDArray[np.int32],
        last_rewards: NDArray[np.float32],
        inverse_temperatures: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Actions [E] and the logits [E, A] that they were sampled from; raw last_rewards [E] are shaped here.

        ``inverse_temperatures`` [E]: 1/tau that the logits are multiplied by before sampling, and not in what is returned. None: tau = 1.
        """
        instructions = None if observation.instructions is None else torch.from_numpy(observation.instructions).unsqueeze(0)
        output, self._core_state = self._agent(
            self._frames(observation).unsqueeze(0),
            torch.from_numpy(core_reset).unsqueeze(0),
            self._core_state,
            torch.from_numpy(last_actions.astype(np.int64)).unsqueeze(0),
            shape_rewards(torch.from_numpy(last_rewards), self._shaping).unsqueeze(0),
            instructions,
        )
        logits = output.policy_logits[0]
        inverse_temperature = None if inverse_temperatures is None else torch.from_numpy(inverse_temperatures)
        actions = sample_actions(logits, self._generator, inverse_temperature)
        return actions.numpy().astype(np.int32), logits.numpy()

    def _frames(self, observation: Observation) -> torch.Tensor:
        """Logical [E, S * C, H, W] of the observation's stack."""
        if self._rolling_stack is None:
            return torch.from_numpy(observation.stack)
        return self._rolling_stack.push(torch.from_numpy(observation.stack[:, -1]), torch.from_numpy(observation.game_reset))
