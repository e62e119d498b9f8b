"""Muon."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from herd.components.optimizers import FrameScheduleSettings
from herd.components.registry import Part
from herd.components.settings import NonNegativeFloat, PositiveFloat

SMALLEST_DENSE = 32
"""A dense layer with fewer inputs or outputs, such as the policy's and the value's last one, is left to Adam."""


class MuonSettings(FrameScheduleSettings):
    """Muon for convolutions and large dense layers, Adam for the rest; its schedule runs on env frames."""

    kind: Literal["muon"] = "muon"
    """Muon: a step turns all directions of a layer equally far."""
    learning_rate: NonNegativeFloat = 5e-4
    """Learning rate at the first update. Muon's steps have 0.2 of it as the root mean square of their elements, about as Adam's."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """Decay of Muon's running mean of gradients."""
    epsilon: PositiveFloat = 1e-5
    """Adam's: added to the root of the second moment."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Adam's: decay of the running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    """Adam's: decay of the running second moment."""

    slots = frozenset({"step", "exp_avg", "exp_avg_sq"})  # of those with Adam
    clipping_shortens = False  # the size of a step does not depend on that of the gradients

    def slots_of(self, shape: tuple[int, ...]) -> frozenset[str] | None:
        """See `OptimizerSettings`."""
        return frozenset({"momentum"}) if is_matrix(shape) else self.slots


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether a parameter is a convolution or a large dense layer, which have Muon. The others have Adam."""
    return len(shape) > 2 or (len(shape) == 2 and min(shape) >= SMALLEST_DENSE)


PART = Part("muon", MuonSettings, f"{__name__}.muon:muon")
