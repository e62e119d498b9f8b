"""A torso in a file of the user's own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from herd.components.registry import Part
from herd.components.torsos import TorsoSettings
from herd.components.user_code import USER_CODE


class CustomTorsoSettings(TorsoSettings):
    """A torso of your own: a class in a file outside this repository (docs/extending.md)."""

    kind: Literal["custom"] = "custom"
    """Your own torso. ``network.torso: module:Class`` is short for this kind and its code."""
    code: str = Field(pattern=USER_CODE)
    """Name of the class, ``module:Class``. It is imported from the folder in which the command runs."""

    follows_design = False


PART = Part("custom", CustomTorsoSettings, f"{__name__}.user_torso:user_torso")
