"""The space of the actions, as a suite describes it: for environments, unrolls and requests. How they are drawn is the run's choice."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


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
