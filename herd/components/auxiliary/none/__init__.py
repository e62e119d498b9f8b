"""No auxiliary loss."""

from __future__ import annotations

from typing import Literal

from herd.components.auxiliary import AuxiliarySettings
from herd.components.registry import Part


class NoAuxiliarySettings(AuxiliarySettings):
    """No auxiliary loss."""

    kind: Literal["none"] = "none"
    """No auxiliary loss."""


PART = Part("none", NoAuxiliarySettings)
