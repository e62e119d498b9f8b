"""Experience replay: none, a ring in the learner, or the episodes of a replay service. These parts are settings alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from herd.components.registry import PartSettings, Registry

ReplayedShare = Annotated[float, Field(gt=0.0, lt=1.0)]


class ReplaySettings(PartSettings):
    """All kinds have ``fraction``, the replayed share of each batch, and ``train_online``, whether online unrolls enter the losses."""


REPLAYS = Registry("replay", __name__, ReplaySettings, first=("none", "local", "shared"))
