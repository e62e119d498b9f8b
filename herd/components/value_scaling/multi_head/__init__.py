"""A value head for each task."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.value_scaling import ValueScalingSettings


class MultiHeadSettings(ValueScalingSettings):
    """PopArt's baseline MultiHead: a value head for each task, without normalisation (arXiv:1809.04474)."""

    kind: Literal["multi_head"] = "multi_head"
    """A value head for each task. An unroll trains only the head of its task."""

    has_head_per_task = True


PART = Part("multi_head", MultiHeadSettings, "herd.components.value_scaling.api:Unscaled")
