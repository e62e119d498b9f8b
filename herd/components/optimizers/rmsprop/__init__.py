"""RMSProp as TensorFlow defines it."""

from __future__ import annotations

from typing import Literal

from herd.components.optimizers import FrameScheduleSettings
from herd.components.registry import Part
from herd.components.settings import Fraction, PositiveFloat


class RMSPropSettings(FrameScheduleSettings):
    """RMSProp as TensorFlow defines it; its schedule runs on env frames (IMPALA, Table G.1)."""

    kind: Literal["rmsprop"] = "rmsprop"
    """RMSProp as TensorFlow defines it, epsilon inside the square root."""
    decay: Fraction = 0.99
    """Decay of the running second moment."""
    epsilon: PositiveFloat = 0.01
    """Added to the second moment inside the square root."""
    momentum: Fraction = 0.0
    """Momentum of the rescaled gradient."""

    slots = frozenset({"second_moment", "velocity"})


PART = Part("rmsprop", RMSPropSettings, f"{__name__}.rmsprop:rmsprop")
