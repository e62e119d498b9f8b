"""Action distributions: from a network's features to policies, and from actions back to features.

An action distribution is one stateless object for a run. Wire, actors, losses, inference service and export know it by this interface only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from herd.algorithms.distributions import Applied, AppliedCategorical, tempered
from herd.networks.layers import Dense

if TYPE_CHECKING:
    from herd.contract.actions import ActionSpace
    from herd.networks.layers import Initialization


class ActionDistribution(Protocol):
    """Policies over one space, P parameters for each row."""

    space: ActionSpace
    num_parameters: int
    """P."""
    num_features: int
    """Size of `encode`."""
    parameters_name: str
    """Name of the parameters for users, in exported files."""

    def at(self, parameters: Tensor, *, inverse_temperature: Tensor | None = None, mask: Tensor | None = None) -> Applied:
        """Return the policies that act.

        Args:
            parameters: [..., P] as the network gives them, and as unrolls record them.
            inverse_temperature: 1/tau [...]; None: 1.
            mask: bool [..., M], what is allowed; None: everything.
        """

    def encode(self, actions: Tensor, has_previous: Tensor) -> Tensor:
        """Return actions [..., *shape] as float32 [..., num_features], zeros where ``has_previous`` [...] is false."""

    def head(self, num_features: int, initialization: Initialization) -> Dense:
        """Return the layer from ``num_features`` features to the parameters."""


class Categorical:
    """One of A discrete actions. The parameters are logits."""

    parameters_name = "logits"

    def __init__(self, space: ActionSpace) -> None:
        """``space``: of one discrete action; ValueError otherwise."""
        self.space = space
        self.num_parameters = self.num_features = space.num_actions

    def at(self, parameters: Tensor, *, inverse_temperature: Tensor | None = None, mask: Tensor | None = None) -> AppliedCategorical:
        """See `ActionDistribution`; a mask has an entry for each action."""
        logits = parameters if inverse_temperature is None else tempered(parameters, inverse_temperature)
        return AppliedCategorical(logits, mask)

    def encode(self, actions: Tensor, has_previous: Tensor) -> Tensor:
        """See `ActionDistribution`: one-hot."""
        # Not F.one_hot, which on a CPU searches the largest action first.
        one_hot = actions.unsqueeze(-1) == torch.arange(self.num_parameters, device=actions.device)
        return (one_hot & has_previous.unsqueeze(-1)).float()

    def head(self, num_features: int, initialization: Initialization) -> Dense:
        """See `ActionDistribution`. Small weights start near the uniform policy for features of any scale."""
        # The paper's initialization does not reduce them.
        return Dense(num_features, self.num_parameters, gain=0.01, initialization=initialization)
