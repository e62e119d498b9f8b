"""What a plan asks for beside the run's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Of ``herd plan``."""

    frames_per_second: float
    """F: env frames that the learner consumes."""
    learner: Literal["gpu", "cpu"] = "gpu"
    """What learner shards train on."""
    learner_frames_per_second: float | None = None
    """That one GPU trains on, replayed ones included; None for what was published."""
    learner_cores: int = 16
    """Of one shard that trains on CPUs."""
    headroom: float = 0.1
    """Share of each actor's core that stays free."""
    pod_gigabits: float = 10.0
    """That a pod may send, and receive, a second."""
    compression_ratio: float | None = None
    """Of frames on the wire; None for the figure of ``actor.compression``."""
    game_steps: float = 1000.0
    """Agent steps of a game: how often the bandit is asked."""

    @property
    def pod_bytes_per_second(self) -> float:
        """The same in bytes."""
        return self.pod_gigabits * 1e9 / 8
