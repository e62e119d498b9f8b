"""The replay service's own settings; what it keeps for how long is ``replay`` (`herd.config.replay`)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from herd.config.section import NonNegativeInt, Port, PositiveFloat, PositiveInt, Section

MAX_REPLICAS = 256
LEAST_MEMORY_BYTES = 64 << 20


class ReplayServiceSettings(Section):
    """One process of the replay service, which a run has where ``replay.kind`` is ``shared``."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Processes that share the episodes, by a hash of each episode; ``herd train`` starts them on this machine. Another number begins
    with empty replay."""
    index: NonNegativeInt = 0
    """Which of them this is."""
    memory_bytes: Annotated[PositiveInt, Field(ge=LEAST_MEMORY_BYTES)] = 8 << 30
    """Of episodes, at most, in each process; beyond it the oldest go, whatever ``replay.capacity_agent_steps`` is. A million agent steps
    of Breakout take about 0.1 GB, of most Atari games 0.2 to 1 GB."""
    snapshot_interval_seconds: PositiveFloat = 300.0
    """Between writings of complete episodes to RUN/replay; one more, with the open ones, at the end. A killed service goes on from the
    last. Only what is new is written."""
    host: str = "127.0.0.1"
    """Interface that the request socket binds."""
    port: Port = 7400
    """Of the request socket; ``herd train`` replaces 0 by a free port, and gives free ones to further replicas."""
    metrics_host: str = "127.0.0.1"
    """Interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """0 takes a free port."""

    @model_validator(mode="after")
    def _index_is_of_a_replica(self) -> Self:
        if self.index >= self.replicas:
            raise ValueError(f"index {self.index} must be below replicas, which is {self.replicas}")
        return self
