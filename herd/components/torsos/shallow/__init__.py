"""IMPALA's small network."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.torsos import ConvolutionalSettings


class ShallowTorsoSettings(ConvolutionalSettings):
    """IMPALA's Fig. 3 left: two convolutions."""

    kind: Literal["shallow"] = "shallow"
    """IMPALA's Fig. 3 left: two convolutions."""

    strides = ((16, 8, 4), (32, 4, 2))


PART = Part("shallow", ShallowTorsoSettings, f"{__name__}.strided:strided_torso")
