"""IMPALA's residual network."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.torsos import ConvolutionalSettings


class DeepTorsoSettings(ConvolutionalSettings):
    """The residual network of IMPALA's Fig. 3 right."""

    kind: Literal["deep"] = "deep"
    """The residual network of IMPALA's Fig. 3 right."""

    cpu_micro_batch = 4


PART = Part("deep", DeepTorsoSettings, f"{__name__}.residual:deep_torso")
