"""The policy of actions of several numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from herd.algorithms.distributions import AppliedProduct
from herd.components.actions.categorical import CategoricalSettings
from herd.components.actions.categorical.categorical import Categorical
from herd.components.actions.normal.normal import Normal, NormalHead
from herd.contract.spaces import ActionSpace, continuous, discrete
from herd.networks.layers import Dense

if TYPE_CHECKING:
    from herd.components.actions.product import ProductSettings
    from herd.networks.layers import Initialization


class Product:
    """N independent numbers. The parameters are the logits of each integer in order, then means and deviations of the continuous ones."""

    def __init__(self, settings: ProductSettings, space: ActionSpace) -> None:
        self.space = space
        self._settings = settings
        choices = space.num_choices
        self._parts: list[Categorical | Normal] = [Categorical(CategoricalSettings(), discrete(count)) for count in choices if count]
        self._places = [[place] for place, count in enumerate(choices) if count]
        floats = [place for place, count in enumerate(choices) if not count]
        if floats:
            self._parts.append(Normal(settings, continuous([space.low[n] for n in floats], [space.high[n] for n in floats])))
            self._places.append(floats)
        self._sizes = [part.num_parameters for part in self._parts]
        self._num_normals = len(floats)
        self.parameters_name = "parameters" if floats else "logits"
        self.num_parameters = sum(self._sizes)
        self.num_features = sum(part.num_features for part in self._parts)

    def at(self, parameters: Tensor, *, inverse_temperature: Tensor | None = None, mask: Tensor | None = None) -> AppliedProduct:
        """See `ActionDistribution`; a mask has an entry for each value of each number, all of which are integers."""
        split = torch.split(parameters, self._sizes, dim=-1)
        masks = [None] * len(split) if mask is None else torch.split(mask, self._sizes, dim=-1)
        each = zip(self._parts, split, masks, strict=True)
        return AppliedProduct(
            [part.at(numbers, inverse_temperature=inverse_temperature, mask=one) for part, numbers, one in each], self._places
        )

    def encode(self, actions: Tensor, has_previous: Tensor) -> Tensor:
        """See `ActionDistribution`: integers one-hot, then the continuous numbers."""
        numbers, features = actions.unbind(dim=-1), []
        for part, places in zip(self._parts, self._places, strict=True):
            chosen = [numbers[place] for place in places]
            features.append(part.encode(chosen[0] if isinstance(part, Categorical) else torch.stack(chosen, dim=-1), has_previous))
        return torch.cat(features, dim=-1)

    def head(self, num_features: int, initialization: Initialization) -> Dense:
        """See `ActionDistribution`. Small weights start near the uniform policy."""
        num_logits = self.num_parameters - 2 * self._num_normals
        if self._num_normals:
            return NormalHead(num_features, num_logits, self._num_normals, self._settings, initialization)
        return Dense(num_features, num_logits, gain=0.01, initialization=initialization)
