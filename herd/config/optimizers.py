"""Optimizers, by kind, each with the schedule of its paper."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from herd.config.section import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section


class _Common(Section):
    learning_rate: NonNegativeFloat = 6e-4
    """Learning rate at the first update, or at the end of the warm-up."""
    schedule: Literal["linear", "constant"] = "linear"
    """Schedule of the learning rate and of the weight decay. ``linear``: decreases linearly to 0."""
    max_gradient_norm: PositiveFloat | None = 40.0
    """Gradients are clipped to this global norm. Null: no clipping."""


class RMSPropSettings(_Common):
    """RMSProp as TensorFlow defines it; its schedule runs on env frames (IMPALA, Table G.1)."""

    kind: Literal["rmsprop"] = "rmsprop"
    """RMSProp as TensorFlow defines it, epsilon inside the square root."""
    schedule_env_frames: PositiveInt = 200_000_000
    """Length of the linear schedule, in env frames."""
    decay: Fraction = 0.99
    """Decay of the running second moment."""
    epsilon: PositiveFloat = 0.01
    """Added to the second moment inside the square root."""
    momentum: Fraction = 0.0
    """Momentum of the rescaled gradient."""


class AdamSettings(_Common):
    """Adam; its schedule runs on env frames. Defaults as in PPO's Atari code (arXiv:1707.06347)."""

    kind: Literal["adam"] = "adam"
    """Adam, without weight decay or warm-up."""
    learning_rate: NonNegativeFloat = 2.5e-4
    """Learning rate at the first update."""
    schedule_env_frames: PositiveInt = 200_000_000
    """Length of the linear schedule, in env frames."""
    epsilon: PositiveFloat = 1e-5
    """Added to the root of the second moment."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Decay of the running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    """Decay of the running second moment."""


class AdamWSettings(_Common):
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

    @model_validator(mode="after")
    def _warm_up_ends_before_the_schedule(self) -> Self:
        if self.schedule == "linear" and self.warmup_updates >= self.schedule_updates:
            raise ValueError(
                f"warmup_updates {self.warmup_updates} must be below schedule_updates {self.schedule_updates}, which includes the warm-up"
            )
        return self


OptimizerSettings = Annotated[RMSPropSettings | AdamSettings | AdamWSettings, Field(discriminator="kind")]
