"""Auxiliary losses: what the features are trained on in addition to the agent's own loss. Only learners read these settings.

The code of a part makes an `herd.components.auxiliary.api.Auxiliary` of its settings.
"""

from __future__ import annotations

from herd.components.registry import PartSettings, Registry


class AuxiliarySettings(PartSettings):
    """What all auxiliary losses have."""


AUXILIARIES = Registry("auxiliary", __name__, AuxiliarySettings, first=("none", "pixel_control"))
