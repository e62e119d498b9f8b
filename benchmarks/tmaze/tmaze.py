"""The T-maze of Bakker (2001): a sign that is seen only at the start says which way to turn at the end of a corridor."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

RIGHT, UP, DOWN = 0, 1, 2
RIGHT_WAY, WRONG_WAY, STANDING = 4.0, -0.1, -0.1
"""Rewards, as in the paper."""


class TMaze(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Observations are [sign says up, sign says down, corridor, junction]; all places of the corridor look the same."""

    def __init__(self, length: int) -> None:
        """``length``: steps from the sign to the junction."""
        self.length = length
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw the sign."""
        super().reset(seed=seed, options=options)
        self._place, self._way = 0, int(self.np_random.choice([UP, DOWN]))
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Walk; the episode ends with a turn at the junction."""
        at_junction = self._place == self.length
        if at_junction and action != RIGHT:
            return self._observation(), RIGHT_WAY if action == self._way else WRONG_WAY, True, False, {}
        moves = action == RIGHT and not at_junction
        self._place += moves
        return self._observation(), 0.0 if moves else STANDING, False, False, {}

    def _observation(self) -> NDArray[np.float32]:
        sign = self._place == 0
        return np.array(
            [sign and self._way == UP, sign and self._way == DOWN, 0 < self._place < self.length, self._place == self.length], np.float32
        )


def make(length: int = 10) -> gymnasium.Env[NDArray[np.float32], np.int64]:
    """Return the maze with a time limit."""
    return gymnasium.wrappers.TimeLimit(TMaze(length), 3 * length)
