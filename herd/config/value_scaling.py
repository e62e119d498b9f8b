"""How values of several tasks share one network, by kind."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from herd.components.settings import Fraction, PositiveFloat, Section


class NoValueScaling(Section):
    """One value head for all tasks."""

    kind: Literal["none"] = "none"
    """One value head for all tasks."""

    def num_values(self, num_tasks: int) -> int:  # noqa: ARG002  as the other variants
        """Value heads of the network."""
        return 1


class MultiHeadSettings(Section):
    """PopArt's baseline MultiHead: a value head for each task, without normalisation (arXiv:1809.04474)."""

    kind: Literal["multi_head"] = "multi_head"
    """A value head for each task. An unroll trains only the head of its task."""

    def num_values(self, num_tasks: int) -> int:
        """Value heads of the network."""
        return num_tasks


class PopArtSettings(Section):
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
    """Replayed unrolls update the statistics as well."""

    def num_values(self, num_tasks: int) -> int:
        """Value heads of the network."""
        return num_tasks

    @model_validator(mode="after")
    def _a_run_begins_within_the_bounds(self) -> Self:
        if not self.min_scale <= 1.0 <= self.max_scale:
            raise ValueError("min_scale must be at most 1 and max_scale at least 1, because every scale starts at 1")
        return self


ValueScalingSettings = Annotated[NoValueScaling | MultiHeadSettings | PopArtSettings, Field(discriminator="kind")]
