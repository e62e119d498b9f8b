"""A core in a file of the user's own."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from herd.components.cores import CoreSettings
from herd.components.registry import Part
from herd.components.settings import PositiveInt
from herd.components.user_code import USER_CODE


class CustomCoreSettings(CoreSettings):
    """A core of your own: a class in a file outside this repository (docs/extending.md)."""

    kind: Literal["custom"] = "custom"
    """Your own core."""
    code: str = Field(pattern=USER_CODE)
    """Name of the class, ``module:Class``. It is imported from the folder in which the command runs."""
    size: PositiveInt
    """Number of floats in the state of one environment. Services that do not import your code need to know it."""
    options: dict[str, Any] = Field(default={})
    """Further keyword arguments for the class."""

    def state_size(self) -> int:
        """Return the size."""
        return self.size


PART = Part("custom", CustomCoreSettings, f"{__name__}.user_core:user_core")
