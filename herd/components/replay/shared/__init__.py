"""Episodes at a replay service."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from herd.components.registry import Part
from herd.components.replay import ReplayedShare, ReplaySettings
from herd.components.settings import NonNegativeInt, PositiveInt


class SharedReplay(ReplaySettings):
    """Whole episodes at a replay service that all agents of the run share (LASER, arXiv:1909.11583)."""

    kind: Literal["shared"] = "shared"
    """Episodes of all agents of the run, kept by the replay service. Recurrent agents replay an episode from its first step under their
    newest weights. Other agents draw single unrolls."""
    fraction: ReplayedShare = 0.875
    """Share of each batch that is replayed, rounded to whole unrolls. The paper uses 7/8, and 128 of 160 on Atari."""
    train_online: bool = True
    """False: learn from replay alone, the ablation of LASER's Figure 2. Online unrolls then enter replay but no loss, and the entropy bonus
    is that of replayed rows. Batches without replayed unrolls, as before the minimum fill, are trained on nevertheless."""
    capacity_agent_steps: PositiveInt = 1_000_000
    """Capacity in agent steps of complete episodes, over all replicas. The oldest episodes are dropped first. The paper uses 10 and 15
    million."""
    minimum_fill_agent_steps: NonNegativeInt = 20_000
    """Agent steps of complete episodes, over all replicas, that must be held before any is replayed. Until then batches contain online
    unrolls only."""
    prefetch_batches: PositiveInt = 2
    """Number of batches for which a learner requests replayed unrolls ahead of time."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=10.0)] = 2.0
    """Longest wait of a batch for replayed unrolls, in seconds. After this time, batches contain online unrolls only and do not wait until
    the service answers again."""

    @model_validator(mode="after")
    def _the_minimum_fits(self) -> Self:
        if self.minimum_fill_agent_steps > self.capacity_agent_steps:
            raise ValueError(
                f"minimum_fill_agent_steps {self.minimum_fill_agent_steps} must not exceed capacity_agent_steps {self.capacity_agent_steps}"
            )
        return self


PART = Part("shared", SharedReplay)
