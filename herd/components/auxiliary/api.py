"""The interface of an auxiliary loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import nn

    from herd.components.losses.api import Forward, LossOutput
    from herd.contract.spaces import EnvSpec


class Auxiliary(Protocol):
    """A head on the agent's features, trained together with the agent. It belongs neither to the actors' weights nor to the contract."""

    def head(self, spec: EnvSpec, num_features: int) -> nn.Module:
        """Return the head, with new parameters from torch's global generator: float32 [T, B, F] -> ``Forward.auxiliary``."""

    def added_to(self, output: LossOutput, forward: Forward) -> LossOutput:
        """Return the agent's loss plus this one, on the rows that the agent's loss accepts."""
