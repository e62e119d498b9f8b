"""A loss, an optimizer and a tracker of another package: settings and `Part`, without torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from herd.components.losses import Head, LossSettings
from herd.components.optimizers import OptimizerSettings
from herd.components.registry import Part
from herd.components.settings import NonNegativeFloat
from herd.components.trackers import TrackerSettings


class CloningSettings(LossSettings):
    """Behavioural cloning."""

    kind: Literal["cloning"] = "cloning"
    """Imitate the policy that acted."""
    value_cost: NonNegativeFloat = 0.5
    """Weight of the values, which learn the next reward."""

    head: ClassVar[Head] = "policy_value"


class MomentumSettings(OptimizerSettings):
    """Gradient descent with momentum."""

    kind: Literal["momentum"] = "momentum"
    """torch's SGD."""
    momentum: NonNegativeFloat = 0.9
    """Momentum of the gradient."""


class PointsSettings(TrackerSettings):
    """A text file of points."""

    kind: Literal["points"] = "points"
    """One line for each point."""
    file: str = "points.txt"
    """Name of the file in the run directory."""


CLONING = Part("cloning", CloningSettings, "corridor_suite.code:cloning")
MOMENTUM = Part("momentum", MomentumSettings, "corridor_suite.code:momentum")
POINTS = Part("points", PointsSettings, "corridor_suite.code:Points")
