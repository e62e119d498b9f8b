"""No core."""

from __future__ import annotations

from typing import Literal

from herd.components.cores import CoreSettings
from herd.components.registry import Part


class NoCoreSettings(CoreSettings):
    """No memory: heads see the current row only."""

    kind: Literal["none"] = "none"
    """No memory: heads see the current row only."""


PART = Part("none", NoCoreSettings, "herd.components.cores.api:NoCore")
