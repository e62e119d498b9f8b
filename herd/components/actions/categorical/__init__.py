"""One of A discrete actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from herd.components.actions import ActionSettings
from herd.components.registry import Part

if TYPE_CHECKING:
    from herd.contract.spaces import ActionSpace


class CategoricalSettings(ActionSettings):
    """One of A discrete actions, by their logits."""

    kind: Literal["categorical"] = "categorical"
    """One of A discrete actions, by their logits."""

    def fits(self, space: ActionSpace) -> bool:
        """See `ActionSettings`."""
        return space.is_discrete

    def num_parameters(self, space: ActionSpace) -> int:
        """Return A."""
        return space.num_actions


PART = Part("categorical", CategoricalSettings, f"{__name__}.categorical:Categorical")
