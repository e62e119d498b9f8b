"""Adam."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from herd.components.optimizers import FrameScheduleSettings
from herd.components.registry import Part
from herd.components.settings import NonNegativeFloat, PositiveFloat


class AdamSettings(FrameScheduleSettings):
    """Adam; its schedule runs on env frames. Defaults as in PPO's Atari code (arXiv:1707.06347)."""

    kind: Literal["adam"] = "adam"
    """Adam, without weight decay or warm-up."""
    learning_rate: NonNegativeFloat = 2.5e-4
    """Learning rate at the first update."""
    epsilon: PositiveFloat = 1e-5
    """Added to the root of the second moment."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Decay of the running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    """Decay of the running second moment."""

    slots = frozenset({"step", "exp_avg", "exp_avg_sq"})
    clipping_shortens = False  # Adam divides by the size of the gradients


PART = Part("adam", AdamSettings, f"{__name__}.adam:adam")
