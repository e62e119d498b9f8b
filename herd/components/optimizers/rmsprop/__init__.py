"""RMSProp as TensorFlow defines it."""

from __future__ import annotations

from typing import Literal

from herd.components.optimizers import OptimizerSettings, Rates
from herd.components.registry import Part
from herd.components.settings import Fraction, PositiveFloat, PositiveInt


class RMSPropSettings(OptimizerSettings):
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

    slots = frozenset({"second_moment", "velocity"})

    def rates(self, *, env_frames: int, learner_updates: int) -> Rates:  # noqa: ARG002
        """See `OptimizerSettings`."""
        return Rates(self.learning_rate * self.remaining(env_frames, self.schedule_env_frames))


PART = Part("rmsprop", RMSPropSettings, f"{__name__}.rmsprop:rmsprop")
