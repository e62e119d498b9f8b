"""AdamW, with a warm-up."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from herd.components.optimizers import OptimizerSettings, Rates
from herd.components.registry import Part
from herd.components.settings import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt


class AdamWSettings(OptimizerSettings):
    """AdamW; its schedule runs on learner updates, after a warm-up (DiCE, Table 5)."""

    kind: Literal["adamw"] = "adamw"
    """AdamW with decoupled weight decay."""
    schedule_updates: PositiveInt = 20_000
    """Length of the linear schedule in learner updates, including the warm-up."""
    warmup_updates: NonNegativeInt = 4000
    """Number of updates in which the learning rate rises linearly to ``learning_rate``."""
    epsilon: PositiveFloat = 1e-6
    """Added to the root of the second moment."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Decay of the running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.98
    """Decay of the running second moment."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay at the first update. Each update shrinks every parameter by the learning rate times this."""

    slots = frozenset({"step", "exp_avg", "exp_avg_sq"})
    clipping_shortens = False  # Adam divides by the size of the gradients

    @model_validator(mode="after")
    def _warm_up_ends_before_the_schedule(self) -> Self:
        if self.schedule == "linear" and self.warmup_updates >= self.schedule_updates:
            raise ValueError(
                f"warmup_updates {self.warmup_updates} must be below schedule_updates {self.schedule_updates}, which includes the warm-up"
            )
        return self

    def rates(self, *, env_frames: int, learner_updates: int) -> Rates:  # noqa: ARG002
        """See `OptimizerSettings`.

        The learning rate rises linearly over the warm-up, so that its last update has the full rate. ``linear`` then falls to 0 after
        ``schedule_updates``. The weight decay has no warm-up.
        """
        warm = min(1.0, (learner_updates + 1) / self.warmup_updates) if self.warmup_updates else 1.0
        if self.schedule == "constant":
            return Rates(self.learning_rate * warm, self.weight_decay)
        decay = self.weight_decay * self.remaining(learner_updates, self.schedule_updates)
        if learner_updates < self.warmup_updates:
            return Rates(self.learning_rate * (learner_updates + 1) / self.warmup_updates, decay)
        left = (self.schedule_updates - learner_updates) / (self.schedule_updates - self.warmup_updates)
        return Rates(self.learning_rate * max(0.0, left), decay)


PART = Part("adamw", AdamWSettings, "herd.components.optimizers.adam.adam:adamw")
