"""The spaces of the environments that a run plays."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_FRAMES = (0, 0, 0)
"""The frame shape of observations without frames."""


@dataclass(frozen=True, slots=True)
class ActionSpace:
    """The action of one step: N numbers, each an integer or continuous.

    Policies choose integers from 0 on. A continuous number with two finite bounds is chosen in [-1, 1], and the environment maps it to its
    bounds; without them it is chosen as the environment takes it.
    """

    low: tuple[float, ...]
    """Lowest value of each number; 0 for integers, minus infinity without a bound."""
    high: tuple[float, ...]
    """Highest value of each number."""
    is_integer: tuple[bool, ...]
    """Which numbers are integers."""
    mask_size: int = 0
    """Number of entries of a mask (M): one for each value of each integer, in order. 0 if all actions are always allowed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: () for a single integer, otherwise (N,)."""
        return () if self.is_discrete else (len(self.low),)

    @property
    def dtype(self) -> Literal["<i4", "<f4"]:
        """Dtype on the wire and for the environment: integers unless a number is continuous."""
        return "<i4" if all(self.is_integer) else "<f4"

    @property
    def is_discrete(self) -> bool:
        """Whether an action is a single number 0..A-1."""
        return self.is_integer == (True,)

    @property
    def num_choices(self) -> tuple[int, ...]:
        """Number of values of each number; 0 where it is continuous."""
        return tuple(int(high) + 1 if integer else 0 for high, integer in zip(self.high, self.is_integer, strict=True))

    @property
    def is_bounded(self) -> bool:
        """Whether every continuous number has two finite bounds."""
        return all(map(math.isfinite, (*self.low, *self.high)))

    @property
    def num_actions(self) -> int:
        """Number of actions of a discrete space (A).

        Raises:
            ValueError: actions are not single numbers 0..A-1.
        """
        if not self.is_discrete:
            raise ValueError(f"these environments do not have one discrete action, but actions of {self}")
        return int(self.high[0]) + 1  # not of `num_choices`: environments ask at every step

    def masked(self) -> ActionSpace:
        """Return the space with a mask."""
        return replace(self, mask_size=sum(self.num_choices))

    def __str__(self) -> str:
        """Describe the space for users, such as ``6 discrete`` or ``3 x 5 discrete and 2 continuous``."""
        choices = " x ".join(str(count) for count in self.num_choices if count)
        bounds = [(low, high) for low, high, integer in zip(self.low, self.high, self.is_integer, strict=True) if not integer]
        told = [f"{choices} discrete"] if choices else []
        if bounds:
            within = f" in [{bounds[0][0]:g}, {bounds[0][1]:g}]" if len(set(bounds)) == 1 else ""
            told.append(f"{len(bounds)} continuous{within}")
        return " and ".join(told) + (", masked" if self.mask_size else "")


def discrete(*num_choices: int) -> ActionSpace:
    """Return the space of single actions 0..A-1, or of several integers of these numbers of values."""
    return ActionSpace((0.0,) * len(num_choices), tuple(count - 1.0 for count in num_choices), (True,) * len(num_choices))


def continuous(low: Sequence[float], high: Sequence[float]) -> ActionSpace:
    """Return the space of continuous numbers between these bounds, which may be infinite."""
    return ActionSpace(tuple(low), tuple(high), (False,) * len(low))


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Spaces of the environments, known without starting an environment."""

    task_names: tuple[str, ...]
    """Names of the tasks, indexed by task_id."""
    frame_shape: tuple[int, int, int]
    """(H, W, C) of the newest frame, uint8; NO_FRAMES if observations are vectors only."""
    frame_stack: int
    """Number of frames in one observation (S)."""
    actions: ActionSpace
    """Space of the actions."""
    action_repeat: int
    """Env frames per agent step."""
    instruction_length: int
    """Number of hashed words per instruction; 0 if the suite has no instructions."""
    num_words: int = 1000
    """Hashed words are in 0..num_words-1, 0 = padding (scalable_agent's 1000 buckets)."""
    vector_size: int = 0
    """Number of float32 values in an observation, beside or instead of its frames (D)."""
    vector_is_bounded: bool = True
    """False if some of these values have bounds that are wide or infinite, so that the network normalises them."""

    def as_json(self) -> dict[str, Any]:
        """Return the spaces as JSON values; infinite bounds need Python's reader."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EnvSpec:
        """Return the spaces that `as_json` described."""
        plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        actions: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values["actions"].items()}
        return cls(**{**plain, "actions": ActionSpace(**actions)})

    @property
    def has_frames(self) -> bool:
        """Whether observations contain frames."""
        return self.frame_shape != NO_FRAMES

    @property
    def plane_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one plane, as networks take it."""
        height, width, channels = self.frame_shape
        return channels, height, width

    @property
    def observation_channels(self) -> int:
        """Channels of the stacked observation, S * C; channel s * C + c, s = 0 the oldest."""
        return self.frame_stack * self.frame_shape[2]
