"""Continuous actions, of a normal distribution for each number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from herd.components.actions import ActionSettings
from herd.components.registry import Part
from herd.components.settings import PositiveFloat, Section

if TYPE_CHECKING:
    from herd.contract.actions import ActionSpace
    from herd.contract.spaces import EnvSpec


class Normals(Section):
    """How continuous numbers are drawn."""

    bounds: Literal["clip", "tanh"] = "clip"
    """What keeps actions in their bounds. ``clip``: the environment receives the nearest action in the bounds, and learning uses the one
    that was drawn. ``tanh``: actions are the tanh of what is drawn, which needs two finite bounds for each number."""
    deviation: Literal["parameter", "network"] = "parameter"
    """Standard deviation of what is drawn. ``parameter``: learned, and equal in all observations. ``network``: an output of the network."""
    initial_deviation: PositiveFloat = 1.0
    """Standard deviation at the start, between 0.007 and 7.3. The bounds of an action are 2 apart."""

    def objection_to(self, space: ActionSpace, key: str) -> str | None:
        """Say why continuous numbers of ``space`` cannot be drawn so, in a sentence that names the setting below ``key``; None if not."""
        if self.bounds == "tanh" and not space.is_bounded:
            return f"{key}.bounds tanh needs two finite bounds for each number, but these environments have actions of {space}"
        return None


class NormalSettings(Normals, ActionSettings):
    """Continuous actions, of a normal distribution for each number."""

    kind: Literal["normal"] = "normal"
    """Continuous actions (``Box``): independent normal distributions, whose means the network gives."""

    def fits(self, space: ActionSpace) -> bool:
        """See `ActionSettings`."""
        return not any(space.is_integer)

    def num_parameters(self, space: ActionSpace) -> int:
        """Return 2 N: the means, then the logarithms of the deviations."""
        return 2 * len(space.low)

    def objection(self, spec: EnvSpec) -> str | None:
        """See `PartSettings`."""
        return super().objection(spec) or self.objection_to(spec.actions, "action")


PART = Part("normal", NormalSettings, f"{__name__}.normal:Normal")
