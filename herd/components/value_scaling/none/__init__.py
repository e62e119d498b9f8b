"""One value head for all tasks."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.value_scaling import ValueScalingSettings


class NoValueScaling(ValueScalingSettings):
    """One value head for all tasks."""

    kind: Literal["none"] = "none"
    """One value head for all tasks."""


PART = Part("none", NoValueScaling, "herd.components.value_scaling.api:Unscaled")
