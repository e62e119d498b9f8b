"""The agent of IMPALA, arXiv:1802.01561, Fig. 3: torso, optional recurrent core, policy and value heads, or DiCE's dueling heads.

Shapes: T rows, B unrolls, P parameters of an action distribution, K value heads, S numbers of the core's
state, H x W pixels, D numbers of a vector, L words.

Precision: parameters are stored as float32. The torso computes in ``compute_dtype``; core, heads and outputs are float32.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor, nn

from herd.components.actions import ACTIONS, ActionSettings
from herd.components.cores import CORES
from herd.components.torsos.api import build_torso
from herd.networks.centering import RunningMoments
from herd.networks.layers import LANGUAGE_SIZE, Convolution, Dense, InstructionEncoder, LayerDesign, PixelConvolution, Rectifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.components.actions.api import ActionDistribution
    from herd.components.cores.api import Core
    from herd.components.losses import Head
    from herd.config.run import NetworkSettings, RunSettings
    from herd.contract.spaces import EnvSpec

JOINT_SIZE = 256
"""Number of units that mix torso and side inputs if there is no recurrent core."""


def build_agent(settings: RunSettings, spec: EnvSpec) -> Agent:
    """Make the agent of a run with fresh parameters.

    Raises:
        ValueError: see `Agent`.
    """
    num_values = settings.value_scaling.num_values(len(spec.task_names))
    return Agent(spec=spec, network=settings.network, action=settings.action, head=settings.loss.head, num_values=num_values)


def design_of(network: NetworkSettings) -> LayerDesign:
    """Return the settings that apply to every layer."""
    return LayerDesign(network.initialization, network.layer_norm, network.input_centering, network.width_multiplier)


class AgentOutput(NamedTuple):
    """The outputs of the heads for each row."""

    parameters: Tensor
    """float32 [T, B, P] of the action distribution, before any temperature. With the dueling head they are the advantages A(x, .)."""
    values: Tensor
    """float32 [T, B, K], one for each value head. With the dueling head Q(x, .) = V(x) + A(x, .)."""
    features: Tensor
    """float32 [T, B, F], the input of the heads."""
    auxiliary: Tensor | None = None
    """Output of the learner's auxiliary head, if any: float32 [T, B, A, Y, X] for pixel control. None from the agent itself."""


class Agent(nn.Module):
    """Policy and value of every row of B unrolls.

    Learners on a CPU are fastest on slices of ``network.torso.micro_batch(...)`` unrolls, gradients summed. Actors act
    with ``for_inference(dtype)`` under ``torch.inference_mode()``.
    """

    compute_dtype: torch.dtype
    """Precision of the torso's convolutions and products: float32 or bfloat16. May be set at any time."""

    def __init__(
        self,
        *,
        spec: EnvSpec,
        network: NetworkSettings,
        action: ActionSettings | None = None,
        head: Head = "policy_value",
        num_values: int = 1,
    ) -> None:
        """Build with fresh parameters from torch's global generator.

        Args:
            spec: spaces of the environments.
            network: settings of torso, core and side inputs.
            action: settings of the action distribution; None: the one that fits.
            head: the one that the run's loss trains.
            num_values: value heads (K), one for all tasks or one for each.

        Raises:
            TorsoError: the torso does not fit the observations.
            UserCodeError: the user's own core cannot be used.
            ValueError: ``network.language`` without instructions in ``spec``, or no distribution fits the actions.
        """
        super().__init__()
        if network.language and spec.instruction_length == 0:
            raise ValueError("network.language needs environments with instructions")
        self.distribution: ActionDistribution = ACTIONS.make(action or ACTIONS.default(), spec.actions)
        self.compute_dtype = torch.float32
        design = design_of(network)
        self.moments = RunningMoments(spec.vector_size) if network.normalizes_vector(spec) else None
        self.torso = build_torso(network.torso, spec, design)
        self.language = InstructionEncoder(spec.num_words) if network.language else None
        self.last_action_and_reward = network.last_action_and_reward
        num_side = LANGUAGE_SIZE if network.language else 0
        if network.last_action_and_reward:
            num_side += self.distribution.num_features + 1
        num_features = self.torso.num_features + num_side
        start = network.initialization
        # With linear heads alone, an instruction could not determine the action for a picture.
        has_joint = num_side > 0 and network.core.state_size() == 0
        self.joint = Dense(num_features, JOINT_SIZE, initialization=start) if has_joint else None
        self.rectify_joint = Rectifier(JOINT_SIZE, layer_norm=network.layer_norm) if has_joint else None
        num_inputs = JOINT_SIZE if has_joint else num_features
        self.core: Core = CORES.make(network.core, num_inputs, design)
        self.num_features = num_features = self.core.num_features
        action_head: Dense = self.distribution.head(num_features, start)
        # Two names, so that weights of one kind are never loaded as the other. DiCE (arXiv:2106.00707) has no layer between core and heads,
        # and adds A to V without centring: each has its own target, which distinguishes them.
        self.policy_head = action_head if head == "policy_value" else None
        self.advantage_head = action_head if head == "dueling" else None
        self.value_head = Dense(num_features, num_values, gain=1.0, initialization=start)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(  # noqa: PLR0917 - a module's forward takes its tensors in order
        self,
        frames: Tensor | None,
        core_reset: Tensor,
        core_state: Tensor,
        last_actions: Tensor,
        last_rewards: Tensor,
        instructions: Tensor | None = None,
        vectors: Tensor | None = None,
        num_tail_rows: int = 0,
        reset_rows: Sequence[int] | None = None,
    ) -> tuple[AgentOutput, Tensor]:
        """Run T rows of B unrolls.

        Args:
            frames: uint8 [T, B, stack * C, H, W]; fastest in the memory order of ``frame_stack.restack``. None without frames.
            core_reset: bool [T, B]; before such a row, the core's state is set to its initial one.
            core_state: float32 [B, S] before row 0.
            last_actions: [T, B, *shape], the action before each row; ignored where ``core_reset`` is true, as there is none.
            last_rewards: float32 [T, B], the reward before each row, clipped to [-1, 1].
            instructions: int64 [T, B, L] hashed words, 0 padding; needed with ``network.language`` only.
            vectors: float32 [T, B, D]; None if observations have only frames.
            num_tail_rows: number of rows at the end, at most T, after the core state that is returned.
            reset_rows: rows in which ``core_reset`` is true for any unroll, if the host knows them: the core is faster then.

        Returns:
            The heads' output, and the core state before the last ``num_tail_rows`` rows.
        """
        images = None if frames is None else _fold_time(frames)
        numbers = None if vectors is None else vectors.flatten(0, 1)
        if self.moments is not None and numbers is not None:
            numbers = self.moments(numbers)
        features = self.torso(images, numbers, self.compute_dtype).float().unflatten(0, core_reset.shape)
        features = self._with_side_inputs(features, core_reset, last_actions, last_rewards, instructions)
        features, core_state = self.core(features, core_reset, core_state, num_tail_rows=num_tail_rows, reset_rows=reset_rows)
        action_head = self.policy_head if self.policy_head is not None else self.advantage_head
        assert action_head is not None
        return AgentOutput(action_head(features), self.value_head(features), features), core_state

    def for_inference(self, dtype: torch.dtype) -> Self:
        """Return a frozen copy that computes in ``dtype`` and stores its torso's weights in it.

        ``load_state_dict`` updates the copy with newer weights in float32 or bfloat16.
        """
        inference = copy.deepcopy(self).eval().requires_grad_(requires_grad=False)
        inference.compute_dtype = dtype
        for module in inference.torso.modules():
            # The small first convolution stays float32: it folds 1/255 into its weights, which must not be rounded twice.
            if isinstance(module, Convolution | Dense) and not isinstance(module, PixelConvolution):
                module.to(dtype)
        return inference

    def _with_side_inputs(
        self, features: Tensor, core_reset: Tensor, last_actions: Tensor, last_rewards: Tensor, instructions: Tensor | None
    ) -> Tensor:
        """Return features [T, B, F] with the reward, the action and the instruction appended, if the network uses them."""
        parts = [features]
        if self.last_action_and_reward:
            parts += [last_rewards.unsqueeze(-1), self.distribution.encode(last_actions, ~core_reset)]
        if self.language is not None:
            if instructions is None:
                raise ValueError("this network needs instructions, but none were given")
            parts.append(self.language(instructions))
        if len(parts) > 1:
            features = torch.cat(parts, dim=-1)
        if self.joint is None or self.rectify_joint is None:
            return features
        mixed: Tensor = self.rectify_joint(self.joint(features))
        return mixed


def _fold_time(frames: Tensor) -> Tensor:
    """[T, B, C, H, W] -> [T * B, C, H, W]; a copy, if one is needed, keeps channels last."""
    if frames.is_contiguous():
        return frames.flatten(0, 1)
    return frames.movedim(2, -1).flatten(0, 1).movedim(-1, 1)
