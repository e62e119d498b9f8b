"""PopArt."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from herd.components.registry import Part
from herd.components.settings import Fraction, PositiveFloat
from herd.components.value_scaling import ValueScalingSettings


class PopArtSettings(ValueScalingSettings):
    """PopArt: a value head for each task, normalised by running statistics of its targets (arXiv:1809.04474)."""

    kind: Literal["popart"] = "popart"
    """A normalised value head for each task. Changes of the statistics preserve the outputs."""
    rate: Fraction = 3e-4
    """Step size of the running statistics, per unroll."""
    min_scale: PositiveFloat = 1e-4
    """Lower bound of the scale. A task without rewards reaches it after about 61,000 unrolls; its first reward is then a target of 1e4."""
    max_scale: PositiveFloat = 1e6
    """Upper bound of the scale."""
    second_moment: Literal["unroll_means", "targets"] = "unroll_means"
    """``unroll_means``: the second moment of the mean target of each unroll. ``targets``: the second moment of the single targets."""
    replayed: bool = False
    """Whether replayed unrolls update the statistics as well."""

    has_head_per_task = True

    @model_validator(mode="after")
    def _a_run_begins_within_the_bounds(self) -> Self:
        if not self.min_scale <= 1.0 <= self.max_scale:
            raise ValueError("min_scale must be at most 1 and max_scale at least 1, because every scale starts at 1")
        return self

    def incompatibility(self, *, has_replay: bool, train_online: bool) -> str | None:
        """See `ValueScalingSettings`."""
        if self.replayed and not has_replay:
            return "value_scaling.replayed needs a replay.kind other than none"
        if not self.replayed and not train_online:
            return "replay.train_online false needs value_scaling.replayed true: PopArt's statistics would never change"
        return None


PART = Part("popart", PopArtSettings, f"{__name__}.scaling:PopArt")
