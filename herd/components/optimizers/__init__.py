"""Optimizers, each with the schedule of its paper. The code of a part makes a ``torch.optim.Optimizer`` of ``(settings, parameters)``.

Two clocks: IMPALA's schedule runs on env frames that the learner has consumed (arXiv:1802.01561, Table G.1), DiCE's on learner updates
(arXiv:2106.00707, Table 5).
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from herd.components.registry import PartSettings, Registry
from herd.components.settings import NonNegativeFloat, PositiveFloat, PositiveInt


class Rates(NamedTuple):
    """The scheduled values of one update."""

    learning_rate: float
    weight_decay: float = 0.0
    """Weight decay; 0 if the optimizer has none."""


class OptimizerSettings(PartSettings):
    """What all optimizers have."""

    learning_rate: NonNegativeFloat = 6e-4
    """Learning rate at the first update, or at the end of the warm-up."""
    schedule: Literal["linear", "constant"] = "linear"
    """Schedule of the learning rate and of the weight decay. ``linear``: decreases linearly to 0."""
    max_gradient_norm: PositiveFloat | None = 40.0
    """Gradients are clipped to this global norm. Null: no clipping."""

    slots: ClassVar[frozenset[str] | None] = None
    """Names of the tensors that the optimizer keeps for each parameter: they tell a checkpoint of another optimizer. None: any names."""
    clipping_shortens: ClassVar[bool] = True
    """Whether a clipped gradient makes a shorter step. It does not where a step's size hardly depends on that of the gradients."""

    @property
    def last_env_frame(self) -> int | None:
        """The env frame from which the learning rate is 0; None if there is none, or if frames do not tell."""
        return None

    def slots_of(self, shape: tuple[int, ...]) -> frozenset[str] | None:  # noqa: ARG002  for subclasses
        """Return ``slots`` of a parameter of that shape."""
        return self.slots

    def rates(self, *, env_frames: int, learner_updates: int) -> Rates:  # noqa: ARG002  for subclasses
        """Return the rates of an update, before which there were ``learner_updates``, on the last of ``env_frames`` consumed frames."""
        return Rates(self.learning_rate)

    def remaining(self, done: int, length: int) -> float:
        """Return the factor of the schedule: ``linear`` falls from 1 at 0 to 0 at ``length``, and stays there; ``constant`` is 1."""
        return 1.0 if self.schedule == "constant" else max(0.0, 1.0 - done / length)


class FrameScheduleSettings(OptimizerSettings):
    """A schedule that runs on env frames."""

    schedule_env_frames: PositiveInt = 200_000_000
    """Length of the linear schedule, in env frames."""

    @property
    def last_env_frame(self) -> int | None:
        """See `OptimizerSettings`."""
        return None if self.schedule == "constant" else self.schedule_env_frames

    def rates(self, *, env_frames: int, learner_updates: int) -> Rates:  # noqa: ARG002
        """See `OptimizerSettings`."""
        return Rates(self.learning_rate * self.remaining(env_frames, self.schedule_env_frames))


OPTIMIZERS = Registry("optimizer", __name__, OptimizerSettings, first=("rmsprop", "adam", "adamw", "muon"))
