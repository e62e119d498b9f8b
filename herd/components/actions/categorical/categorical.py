"""The categorical policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from herd.algorithms.distributions import AppliedCategorical, tempered
from herd.networks.layers import Dense

if TYPE_CHECKING:
    from herd.components.actions.categorical import CategoricalSettings
    from herd.contract.spaces import ActionSpace
    from herd.networks.layers import Initialization


class Categorical:
    """One of A discrete actions. The parameters are logits."""

    parameters_name = "logits"

    def __init__(self, settings: CategoricalSettings, space: ActionSpace) -> None:
        """``space``: of one discrete action; ValueError otherwise."""
        self.space = space
        self._uniform_share = settings.uniform_share
        self.num_parameters = self.num_features = space.num_actions

    def at(self, parameters: Tensor, *, inverse_temperature: Tensor | None = None, mask: Tensor | None = None) -> AppliedCategorical:
        """See `ActionDistribution`; a mask has an entry for each action."""
        logits = parameters if inverse_temperature is None else tempered(parameters, inverse_temperature)
        return AppliedCategorical(logits, mask, uniform_share=self._uniform_share)

    def encode(self, actions: Tensor, has_previous: Tensor) -> Tensor:
        """See `ActionDistribution`: one-hot."""
        # Not F.one_hot, which on a CPU searches the largest action first.
        one_hot = actions.unsqueeze(-1) == torch.arange(self.num_parameters, device=actions.device)
        return (one_hot & has_previous.unsqueeze(-1)).float()

    def head(self, num_features: int, initialization: Initialization) -> Dense:
        """See `ActionDistribution`. Small weights start near the uniform policy for features of any scale."""
        # The paper's initialization does not reduce them.
        return Dense(num_features, self.num_parameters, gain=0.01, initialization=initialization)
