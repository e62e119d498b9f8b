"""Experience replay, by kind: none, a ring in the learner, or the episodes of a replay service."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from herd.components.settings import NonNegativeInt, PositiveInt, Section

ReplayedShare = Annotated[float, Field(gt=0.0, lt=1.0)]


class NoReplay(Section):
    """No replay: every unroll is trained on as it arrives from actors."""

    kind: Literal["none"] = "none"
    """No replay: batches contain online unrolls only."""

    fraction: ClassVar[float] = 0.0
    train_online: ClassVar[bool] = True


class UniformReplay(Section):
    """A ring of unrolls in each learner shard, drawn uniformly (IMPALA section 5.2.2)."""

    kind: Literal["uniform"] = "uniform"
    """A ring of unrolls of the learner's own actors, in its memory."""
    fraction: ReplayedShare = 0.5
    """Share of each batch that is replayed, rounded to whole unrolls. The paper's experiment uses 0.5."""
    capacity_unrolls: PositiveInt = 10_000
    """Number of unrolls kept, over all shards; the oldest are dropped first. An Atari unroll of 20 steps takes about 170 kB of memory."""
    minimum_fill_unrolls: PositiveInt = 1_000
    """Number of unrolls, over all shards, that must be held before any is replayed. Until then batches contain online unrolls only, so that
    the first unrolls are not replayed over and over."""

    train_online: ClassVar[bool] = True

    @model_validator(mode="after")
    def _the_minimum_fits(self) -> Self:
        if self.minimum_fill_unrolls > self.capacity_unrolls:
            raise ValueError(f"minimum_fill_unrolls {self.minimum_fill_unrolls} must not exceed capacity_unrolls {self.capacity_unrolls}")
        return self


class SharedReplay(Section):
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
    """Longest wait of a batch for replayed unrolls, in seconds. After it, batches contain online unrolls only and do not wait, until the
    service answers again."""

    @model_validator(mode="after")
    def _the_minimum_fits(self) -> Self:
        if self.minimum_fill_agent_steps > self.capacity_agent_steps:
            raise ValueError(
                f"minimum_fill_agent_steps {self.minimum_fill_agent_steps} must not exceed capacity_agent_steps {self.capacity_agent_steps}"
            )
        return self


ReplaySettings = Annotated[NoReplay | UniformReplay | SharedReplay, Field(discriminator="kind")]
