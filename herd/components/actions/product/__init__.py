"""Actions of several numbers, each drawn independently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from herd.components.actions.normal import ContinuousSettings
from herd.components.registry import Part

if TYPE_CHECKING:
    from herd.contract.spaces import ActionSpace


class ProductSettings(ContinuousSettings):
    """Actions of several numbers: integers are drawn by their logits, continuous ones from normal distributions."""

    kind: Literal["product"] = "product"
    """Actions of several numbers (``MultiDiscrete``, ``MultiBinary``, ``Tuple``, ``Dict``), each drawn independently: integers by their
    logits, continuous numbers from normal distributions."""

    def fits(self, space: ActionSpace) -> bool:
        """See `ActionSettings`."""
        return not space.is_discrete and any(space.is_integer)

    def num_parameters(self, space: ActionSpace) -> int:
        """Return the logits of all integers, and two for each continuous number."""
        return sum(count or 2 for count in space.num_choices)


PART = Part("product", ProductSettings, f"{__name__}.product:Product")
