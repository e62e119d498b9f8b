"""The head of an auxiliary loss, trained together with the agent. It is not part of the actors' weights or of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.config.auxiliary import PixelControlSettings
from herd.networks.agent import AgentOutput
from herd.networks.pixel_control import PixelControlHead

if TYPE_CHECKING:
    from herd.config.auxiliary import AuxiliarySettings
    from herd.contract.spaces import EnvSpec
    from herd.networks.agent import Agent

AUXILIARY = "auxiliary"
"""Name of the head's part of a checkpoint, and prefix of its parameters' names."""


class WithAuxiliary(nn.Module):
    """The agent and the head as one module, called like the agent, so that shards sum the gradients of both."""

    def __init__(self, agent: Agent, head: PixelControlHead) -> None:
        super().__init__()
        self.agent = agent
        self.head = head

    def forward(self, *inputs: Tensor | int | None) -> tuple[AgentOutput, Tensor]:
        """Run ``Agent.forward``, with ``auxiliary`` filled in if gradients are enabled, which excludes the burn-in."""
        output: AgentOutput
        output, core_state = self.agent(*inputs)
        if torch.is_grad_enabled():
            # Not `_replace`, whose result torch.compile cannot return in every release.
            output = AgentOutput(output.policy_logits, output.values, output.features, self.head(output.features))
        return output, core_state


def make_auxiliary_head(settings: AuxiliarySettings, spec: EnvSpec, num_features: int) -> PixelControlHead | None:
    """Return the head of the auxiliary loss, with new parameters from torch's global generator; None if there is no such loss.

    Raises:
        ValueError: these observations cannot be trained on; one sentence that names the setting.
    """
    if (objection := settings.objection(spec)) is not None:
        raise ValueError(objection)
    if not isinstance(settings, PixelControlSettings):
        return None
    return PixelControlHead(num_features, spec.num_actions, settings.grid(spec))
