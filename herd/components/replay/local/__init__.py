"""A ring of unrolls in each learner shard."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from herd.components.registry import Part
from herd.components.replay import ReplayedShare, ReplaySettings
from herd.components.settings import PositiveInt


class LocalReplay(ReplaySettings):
    """A ring of unrolls in each learner shard, drawn uniformly (IMPALA section 5.2.2)."""

    kind: Literal["local"] = "local"
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


PART = Part("local", LocalReplay)
