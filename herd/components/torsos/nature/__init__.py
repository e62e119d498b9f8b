"""The network of DQN's Nature paper."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.torsos import ConvolutionalSettings


class NatureTorsoSettings(ConvolutionalSettings):
    """Three convolutions, as in DQN's Nature paper."""

    kind: Literal["nature"] = "nature"
    """Three convolutions, as in DQN's Nature paper."""

    strides = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    num_features = 512


PART = Part("nature", NatureTorsoSettings, "herd.components.torsos.shallow.strided:strided_torso")
