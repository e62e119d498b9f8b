"""The policy of continuous numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.algorithms.distributions import AppliedNormal
from herd.networks.layers import Dense

if TYPE_CHECKING:
    from herd.components.actions.normal import ContinuousSettings
    from herd.contract.spaces import ActionSpace
    from herd.networks.layers import Initialization

MIN_LOG_DEVIATION, MAX_LOG_DEVIATION = -5.0, 2.0
"""Limits of the deviations. Below, the policy gradient of a single action, proportional to 1 / deviation, becomes large; above, nearly all
actions are at the bounds, whose width is 2."""


class Normal:
    """N continuous numbers. The parameters are N means and N logarithms of standard deviations."""

    parameters_name = "means_and_log_deviations"

    def __init__(self, settings: ContinuousSettings, space: ActionSpace) -> None:
        self._settings = settings
        self.space = space
        self.num_features = len(space.low)
        self.num_parameters = 2 * self.num_features

    def at(self, parameters: Tensor, *, inverse_temperature: Tensor | None = None, mask: Tensor | None = None) -> AppliedNormal:  # noqa: ARG002
        """See `ActionDistribution`. A temperature multiplies variances, as the density to the power of 1/tau is the one of that normal."""
        mean, log_deviation = parameters.to(torch.promote_types(parameters.dtype, torch.float32)).chunk(2, dim=-1)
        if inverse_temperature is not None:
            log_deviation = log_deviation - 0.5 * inverse_temperature.to(log_deviation.dtype).log().unsqueeze(-1)
        # Those of the head are within the limits; an infinite temperature's are not, nor need be those of a message.
        log_deviation = log_deviation.clamp(MIN_LOG_DEVIATION, MAX_LOG_DEVIATION)
        return AppliedNormal(mean, log_deviation, is_squashed=self._settings.bounds == "tanh")

    def encode(self, actions: Tensor, has_previous: Tensor) -> Tensor:
        """See `ActionDistribution`: the numbers, as the environment clips them if all have bounds."""
        clipped = actions.clamp(-1.0, 1.0) if self.space.is_bounded else actions
        return clipped.masked_fill(~has_previous.unsqueeze(-1), 0.0)

    def head(self, num_features: int, initialization: Initialization) -> Dense:
        """See `ActionDistribution`."""
        return NormalHead(num_features, 0, self.num_features, self._settings, initialization)


class NormalHead(Dense):
    """The layer that gives other parameters, then the means of normals and the logarithms of their deviations, within their limits."""

    def __init__(
        self, num_features: int, num_others: int, num_normals: int, settings: ContinuousSettings, initialization: Initialization
    ) -> None:
        """``num_others``: number of parameters before those of the normals."""
        is_of_network = settings.deviation == "network"
        # Small weights start with means near 0 and deviations near the initial one for features of any scale.
        super().__init__(num_features, num_others + num_normals * (1 + is_of_network), gain=0.01, initialization=initialization)
        share = (math.log(settings.initial_deviation) - MIN_LOG_DEVIATION) / (MAX_LOG_DEVIATION - MIN_LOG_DEVIATION)
        start = math.log(share / (1.0 - share))
        self._num_normals = num_normals
        self.deviation = None if is_of_network else nn.Parameter(torch.full((num_normals,), start))
        """[N]: deviations of all observations, before the limits."""
        if is_of_network:
            with torch.no_grad():
                self.bias[-num_normals:] = start

    def forward(self, features: Tensor) -> Tensor:
        """[..., num_features] -> [..., num_others + 2 * num_normals]."""
        outputs = super().forward(features)
        if self.deviation is None:
            others, free = outputs[..., : -self._num_normals], outputs[..., -self._num_normals :]
        else:
            others, free = outputs, self.deviation.expand(*outputs.shape[:-1], -1)
        # A sigmoid keeps a gradient near the limits, where a clamp would have none.
        bounded = MIN_LOG_DEVIATION + (MAX_LOG_DEVIATION - MIN_LOG_DEVIATION) * free.sigmoid()
        return torch.cat([others, bounded.to(others.dtype)], dim=-1)
