"""One of A discrete actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from herd.components.actions import ActionSettings
from herd.components.registry import Part

if TYPE_CHECKING:
    from herd.contract.spaces import ActionSpace


class CategoricalSettings(ActionSettings):
    """One of A discrete actions, by their logits."""

    kind: Literal["categorical"] = "categorical"
    """One of A discrete actions, by their logits."""
    uniform_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Weight of the uniform policy in the one that plays and learns (DreamerV3, arXiv:2301.04104, has 0.01), so that no action ever
    disappears. Without it, an agent that loses may learn never to do what makes the game go on. Greedy play and exported logits are
    without it."""

    def fits(self, space: ActionSpace) -> bool:
        """See `ActionSettings`."""
        return space.is_discrete

    def num_parameters(self, space: ActionSpace) -> int:
        """Return A."""
        return space.num_actions

    @property
    def mixes_with_uniform(self) -> bool:
        """See `ActionSettings`."""
        return self.uniform_share > 0.0


PART = Part("categorical", CategoricalSettings, f"{__name__}.categorical:Categorical")
