"""IMPALA's actor-critic."""

from __future__ import annotations

from typing import ClassVar, Literal

from herd.components.losses import Head, VTraceSettings
from herd.components.registry import Part
from herd.components.settings import NonNegativeFloat, PositiveFloat


class ImpalaSettings(VTraceSettings):
    """IMPALA's actor-critic (sections 4 and 5.2.2)."""

    kind: Literal["impala"] = "impala"
    """IMPALA's policy gradient, value loss and entropy bonus."""
    baseline_cost: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_cost: NonNegativeFloat = 0.01
    """Weight of the entropy bonus."""
    advantage_normalization: Literal["none", "batch"] = "none"
    """``batch``: advantages are normalised to mean 0 and mean square 1 over the batch (over a shard's part of it), as in PPO's code. As a
    result, the size of rewards does not change how much the policy moves. The batch is not split into micro-batches."""
    ratio_clip: PositiveFloat | None = None
    """PPO's epsilon (arXiv:1707.06347, eq. 7), as in APPO (arXiv:2006.11751): a step leaves the policy gradient once pi/mu is beyond 1 +
    epsilon and its advantage is positive, or below 1 - epsilon and its advantage is negative. This limits how far the noise of a few
    batches can move the policy. Null: no limit."""

    head: ClassVar[Head] = "policy_value"

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a micro-batch would be another loss than its share of the batch."""
        return self.advantage_normalization == "batch"


PART = Part("impala", ImpalaSettings, f"{__name__}.loss:impala")
