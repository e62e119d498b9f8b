"""No replay."""

from __future__ import annotations

from typing import ClassVar, Literal

from herd.components.registry import Part
from herd.components.replay import ReplaySettings


class NoReplay(ReplaySettings):
    """No replay: every unroll is trained on as it arrives from actors."""

    kind: Literal["none"] = "none"
    """No replay: batches contain online unrolls only."""

    fraction: ClassVar[float] = 0.0
    train_online: ClassVar[bool] = True


PART = Part("none", NoReplay)
