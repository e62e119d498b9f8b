"""What an action distribution is: from a network's features to policies, and from actions back to features.

It is one stateless object for a run. Wire, actors, losses, inference service and export know it by this interface only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from herd.algorithms.distributions import Applied
    from herd.contract.spaces import ActionSpace
    from herd.networks.layers import Dense, Initialization


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
            mask: bool [..., M], what is allowed; None: everything. A row that allows no value of a number, as where no game is played,
                allows all.
        """

    def encode(self, actions: Tensor, has_previous: Tensor) -> Tensor:
        """Return actions [..., *shape] as float32 [..., num_features], zeros where ``has_previous`` [...] is false."""

    def head(self, num_features: int, initialization: Initialization) -> Dense:
        """Return the layer from ``num_features`` features to the parameters."""
