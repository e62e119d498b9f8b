"""Settings of the replay service's processes. What it keeps, and for how long, is set by ``replay`` (`herd.config.replay`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from herd.components.settings import PositiveFloat, PositiveInt, Section

MAX_REPLICAS = 256
LEAST_MEMORY_BYTES = 64 << 20
OPEN_SHARE = 0.25
"""Largest share of ``memory_bytes`` for episodes that have not ended. By default, Atari needs an eighth."""


class ReplayServiceSettings(Section):
    """One process of the replay service. A run has it if ``replay.kind`` is ``shared``."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Number of processes that share the episodes, by a hash of each episode. ``herd train`` starts them on this machine. After a change of
    this number replay starts empty."""
    memory_bytes: Annotated[PositiveInt, Field(ge=LEAST_MEMORY_BYTES)] = 8 << 30
    """Largest memory for episodes in each process, in bytes. Beyond it the oldest complete ones are dropped, regardless of
    ``replay.capacity_agent_steps``. Episodes that have not ended may take a quarter of it; beyond that, the one that has been silent
    longest is discarded. A million agent steps of Breakout take about 0.1 GB, of most Atari games 0.2 to 1 GB."""
    snapshot_interval_seconds: PositiveFloat = 300.0
    """Seconds between two writes of complete episodes to RUN/replay. One more, with open episodes, is made at the end. A killed service
    continues from the last one. Only new episodes are written."""
