"""A policy as one module with named input and output tensors, for one row of E environments, including all preprocessing.

Shapes: E environments, C H W one frame, D numbers of a vector, L words of an instruction, K value heads,
S numbers of the core's state.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from herd.algorithms.distributions import FORBIDDEN
from herd.algorithms.rewards import clip_last_rewards
from herd.networks.layers import InstructionEncoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.acting.policy import Rows
    from herd.agent import Agent
    from herd.contract.spaces import EnvSpec

VALUES, CORE_STATE, ACTION_MASKS = "values", "core_state", "action_masks"
NEXT_CORE_STATE = "next_core_state"


class Port(NamedTuple):
    """An input or output."""

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    """Shape; the first axis is "environments"."""
    meaning: str


class ExportedPolicy(nn.Module):
    """The acting network in float32.

    It scales pixels, clips rewards and unnormalises values (PopArt). The recurrent state is an input and an output. Parameters of the
    action distribution are before any temperature: of logits, sample from the softmax, or take the largest (docs/export.md).
    """

    def __init__(self, agent: Agent, spec: EnvSpec) -> None:
        """``agent``: the network, whose parameters are copied."""
        super().__init__()
        self.agent = copy.deepcopy(agent).eval()
        self.agent.compute_dtype = torch.float32
        if isinstance(self.agent.language, InstructionEncoder):
            self.agent.language = _EveryInstruction(self.agent.language)  # type: ignore[assignment]
        self.inputs = inputs_of(agent, spec)
        self.outputs = outputs_of(agent)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Compute the tensors of ``outputs`` from ``tensors`` in the order of ``inputs``."""
        given = dict(zip([port.name for port in self.inputs], tensors, strict=True))
        first = tensors[0]
        frames = given.get("frames")
        if frames is not None:
            frames = frames.contiguous(memory_format=torch.channels_last)
        num_environments = first.shape[0]
        no = torch.zeros(num_environments, dtype=torch.bool, device=first.device)
        core_state = given.get(CORE_STATE, torch.zeros(num_environments, 0, device=first.device))
        rewards = given.get("last_rewards")
        output, after = self.agent(
            _row(frames),
            given.get("core_reset", no).unsqueeze(0),
            core_state,
            given.get("last_actions", no).unsqueeze(0),
            (no.float() if rewards is None else clip_last_rewards(rewards)).unsqueeze(0),
            _row(given.get("instructions")),
            _row(given.get("vectors")),
        )
        parameters = output.parameters[0]
        if (masks := given.get(ACTION_MASKS)) is not None:
            parameters = parameters.masked_fill(~masks, FORBIDDEN)
        found = {self.agent.distribution.parameters_name: parameters, VALUES: output.values[0], NEXT_CORE_STATE: after}
        return tuple(found[port.name] for port in self.outputs)


def inputs_of(agent: Agent, spec: EnvSpec) -> tuple[Port, ...]:
    """Return the inputs of the network for a row."""
    each = "environments"
    height, width, _ = spec.frame_shape
    found = []
    if spec.has_frames:
        stacked = "pixels; channel s * C + c, s = 0 the oldest frame, zero before a game's first"
        found.append(Port("frames", "uint8", (each, spec.observation_channels, height, width), stacked))
    if spec.vector_size:
        found.append(Port("vectors", "float32", (each, spec.vector_size), "as observed"))
    if agent.language is not None:
        found.append(Port("instructions", "int64", (each, spec.instruction_length), "hashed words, 0 behind the last"))
    if agent.last_action_and_reward:
        actions = spec.actions
        dtype = "int64" if actions.dtype == "<i4" else "float32"
        found.append(Port("last_actions", dtype, (each, *actions.shape), "the action before this row; ignored where a game starts"))
        found.append(Port("last_rewards", "float32", (each,), "the reward before this row, raw, 0 where a game starts"))
    if spec.actions.mask_size:
        allowed = "what is allowed, at least one value of each number of an action; the logits of all others become -1e30"
        found.append(Port(ACTION_MASKS, "bool", (each, spec.actions.mask_size), allowed))
    if agent.core.state_size or agent.last_action_and_reward:
        found.append(Port("core_reset", "bool", (each,), "a game starts with this row: neither state nor last action count"))
    if agent.core.state_size:
        meaning = "next_core_state of the row before; ignored where core_reset is true"
        found.append(Port(CORE_STATE, "float32", (each, agent.core.state_size), meaning))
    return tuple(found)


def outputs_of(agent: Agent) -> tuple[Port, ...]:
    """Return the outputs of the network for a row."""
    each = "environments"
    found = [
        Port(agent.distribution.parameters_name, "float32", (each, agent.distribution.num_parameters), "of the actions"),
        Port(VALUES, "float32", (each, agent.value_head.out_features), "of shaped and discounted rewards to come"),
    ]
    if agent.core.state_size:
        found.append(Port(NEXT_CORE_STATE, "float32", (each, agent.core.state_size), "the core's state after this row"))
    return tuple(found)


def tensors_of(rows: Rows, ports: tuple[Port, ...]) -> list[NDArray[np.generic]]:
    """Return the inputs ``ports`` of an actor's row, C-contiguous."""
    named = {
        "frames": rows.frames,
        "vectors": rows.vectors,
        "instructions": rows.instructions,
        "last_actions": rows.last_actions,
        "last_rewards": rows.last_rewards,
        ACTION_MASKS: rows.action_masks,
        "core_reset": rows.core_reset,
        CORE_STATE: rows.core_state,
    }
    return [np.ascontiguousarray(named[port.name], np.dtype(port.dtype)) for port in ports]


class _EveryInstruction(nn.Module):
    """`InstructionEncoder` without its search for equal instructions, whose sizes depend on the data."""

    def __init__(self, encoder: InstructionEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, instructions: Tensor) -> Tensor:
        """int64 [1, E, L] -> float32 [1, E, 64]."""
        return self.encoder.read(instructions[0]).unsqueeze(0)


def _row(tensor: Tensor | None) -> Tensor | None:
    """Return [E, ...] as one row, [1, E, ...]."""
    return None if tensor is None else tensor.unsqueeze(0)
