"""Continuous actions, drawn from a normal distribution for each number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from herd.components.actions import ActionSettings
from herd.components.registry import Part
from herd.components.settings import PositiveFloat

if TYPE_CHECKING:
    from herd.contract.spaces import ActionSpace, EnvSpec


class ContinuousSettings(ActionSettings):
    """How continuous numbers are drawn."""

    bounds: Literal["clip", "tanh"] = "clip"
    """How continuous actions stay within their bounds. ``clip``: the environment receives the nearest allowed action, while learning uses
    the one that was sampled. ``tanh``: the sample is passed through tanh, which needs two finite bounds for each number."""
    deviation: Literal["parameter", "network"] = "parameter"
    """Where the standard deviation of continuous actions comes from. ``parameter``: learned, and the same for all observations.
    ``network``: an output of the network."""
    initial_deviation: PositiveFloat = 1.0
    """Initial standard deviation, from 0.01 to 7, on a scale on which the bounds of an action are 2 apart."""

    @field_validator("initial_deviation")
    @classmethod
    def _is_within_the_limits(cls, value: float) -> float:
        if not 0.01 <= value <= 7.0:
            raise ValueError("should be from 0.01 to 7")
        return value

    def objection(self, spec: EnvSpec) -> str | None:
        """See `PartSettings`."""
        if (objection := super().objection(spec)) is None and self.bounds == "tanh" and not spec.actions.is_bounded:
            return f"action.bounds tanh needs two finite bounds for each number, but these environments have actions of {spec.actions}"
        return objection


class NormalSettings(ContinuousSettings):
    """Continuous actions, drawn from a normal distribution for each number."""

    kind: Literal["normal"] = "normal"
    """Continuous actions (``Box``): independent normal distributions, whose means the network gives."""

    def fits(self, space: ActionSpace) -> bool:
        """See `ActionSettings`."""
        return not any(space.is_integer)

    def num_parameters(self, space: ActionSpace) -> int:
        """Return 2 N: the means, then the logarithms of the deviations."""
        return 2 * len(space.low)


PART = Part("normal", NormalSettings, f"{__name__}.normal:Normal")
