"""The space of the actions, as a suite describes it: for environments, unrolls and requests. How they are drawn is the run's choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ActionSpace:
    """The action of one step."""

    shape: tuple[int, ...]
    """Shape; () for a single number."""
    dtype: Literal["<i4", "<f4"]
    """Dtype on the wire and for the environment: integers for discrete actions, floats for continuous ones."""
    low: tuple[float, ...]
    """Lowest value of each component, in C order."""
    high: tuple[float, ...]
    """Highest value of each component. The wire refuses integers beyond the bounds; environments map floats to theirs."""
    mask_size: int = 0
    """Number of entries of a mask (M); 0 if all actions are always allowed."""

    @property
    def is_discrete(self) -> bool:
        """Whether an action is a single number 0..A-1."""
        return self.shape == () and self.dtype == "<i4" and self.low == (0,)

    @property
    def num_actions(self) -> int:
        """Number of actions of a discrete space (A).

        Raises:
            ValueError: actions are not single numbers 0..A-1.
        """
        if not self.is_discrete:
            raise ValueError(f"these environments do not have one discrete action, but actions of {self}")
        return int(self.high[0]) + 1

    def __str__(self) -> str:
        """Describe the space for users, such as ``6 discrete``."""
        if self.is_discrete:
            return f"{self.num_actions} discrete"
        kind = "discrete" if self.dtype == "<i4" else "continuous"
        return f"shape {self.shape}, {kind}, from {self.low} to {self.high}"


def discrete(num_actions: int) -> ActionSpace:
    """Return the space of single actions 0..num_actions-1."""
    return ActionSpace((), "<i4", (0,), (num_actions - 1,))
