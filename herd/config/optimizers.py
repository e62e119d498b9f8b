"""Optimizers, by kind, each with the schedule of its paper."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from herd.config.section import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section


class _Common(Section):
    learning_rate: NonNegativeFloat = 6e-4
    """At the first update; with a warm-up, at its end."""
    schedule: Literal["linear", "constant"] = "linear"
    """Of the learning rate, and of the weight decay where there is one: linearly to 0, or constant."""
    max_gradient_norm: PositiveFloat | None = 40.0
    """Global norm clip; null for none."""
    clip_percentile: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    """Clips each gradient besides at this percentile of the global norms of the newest updates (AutoClip, arXiv:2007.14469; 10 there), so
    that no bound need be known beforehand. Null: at ``max_gradient_norm`` alone."""
    clip_history_updates: PositiveInt = 1000
    """How many updates the percentile is taken of."""
    target_kl: PositiveFloat | None = None
    """Nats. Divides the learning rate by 1.5 after an update that moved the policy by more than twice this, and multiplies it by 1.5 after
    one that moved it by less than half (arXiv:2109.11978), on top of the schedule. Null: the schedule alone."""
    kl_interval_updates: PositiveInt = 10
    """Updates between measurements of that move, on an eighth of the batch; each costs about a third of an update."""


class RMSPropSettings(_Common):
    """RMSProp as TensorFlow defines it; its schedule runs on env frames (IMPALA, Table G.1)."""

    kind: Literal["rmsprop"] = "rmsprop"
    """RMSProp as TensorFlow defines it, epsilon inside the square root."""
    schedule_env_frames: PositiveInt = 200_000_000
    """Length of the linear schedule, in env frames."""
    decay: Fraction = 0.99
    """Of the running second moment."""
    epsilon: PositiveFloat = 0.01
    """Added to the second moment inside the square root."""
    momentum: Fraction = 0.0
    """Of the rescaled gradient."""


class AdamSettings(_Common):
    """Adam; its schedule runs on env frames. Defaults as in PPO's Atari code (arXiv:1707.06347)."""

    kind: Literal["adam"] = "adam"
    """Adam, without weight decay or warm-up."""
    learning_rate: NonNegativeFloat = 2.5e-4
    """At the first update."""
    schedule_env_frames: PositiveInt = 200_000_000
    """Length of the linear schedule, in env frames."""
    epsilon: PositiveFloat = 1e-5
    """Added to the root of the second moment."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Of the running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    """Of the running second moment."""


class AdamWSettings(_Common):
    """AdamW; its schedule runs on learner updates, after a warm-up (DiCE, Table 5)."""

    kind: Literal["adamw"] = "adamw"
    """AdamW with decoupled weight decay."""
    schedule_updates: PositiveInt = 20_000
    """Length of the linear schedule, in learner updates, the warm-up included."""
    warmup_updates: NonNegativeInt = 4000
    """Updates in which the learning rate rises linearly to ``learning_rate``."""
    epsilon: PositiveFloat = 1e-6
    """Added to the root of the second moment."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Of the running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.98
    """Of the running second moment."""
    weight_decay: NonNegativeFloat = 0.01
    """At the first update: learning rate times this is taken off every parameter."""

    @model_validator(mode="after")
    def _warm_up_ends_before_the_schedule(self) -> Self:
        if self.schedule == "linear" and self.warmup_updates >= self.schedule_updates:
            raise ValueError(
                f"warmup_updates {self.warmup_updates} must be below schedule_updates {self.schedule_updates}, which includes it"
            )
        return self


OptimizerSettings = Annotated[RMSPropSettings | AdamSettings | AdamWSettings, Field(discriminator="kind")]
