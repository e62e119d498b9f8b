"""A small environment whose actions have several numbers and a mask, for the experiment ``dials`` and as a model of your own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Dials(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """Turn every dial to its target: at each step each dial goes down, stays, or goes up.

    The reward of a step is the share of dials at their targets, and a game has ``steps`` of them. A dial at an end cannot be turned
    further: `action_masks` forbids it, and playing it nevertheless is an error.
    """

    def __init__(self, dials: int = 3, positions: int = 6, steps: int = 20) -> None:
        self.action_space = spaces.MultiDiscrete([3] * dials)
        self.observation_space = spaces.Box(-1.0, 1.0, (2 * dials,), np.float32)
        self._last = positions - 1
        self._steps = steps
        self._step = 0
        self._dials = self._targets = np.zeros(dials, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        super().reset(seed=seed, options=options)
        self._step = 0
        self._dials, self._targets = self.np_random.integers(0, self._last + 1, (2, len(self._dials)))
        return self._observation(), {}

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`; ValueError if the mask forbids ``action``."""
        turned = self._dials + action - 1
        if ((turned < 0) | (turned > self._last)).any():
            raise ValueError(f"dials at {self._dials.tolist()} cannot be turned by {(action - 1).tolist()}")
        self._dials = turned
        self._step += 1
        return self._observation(), float((self._dials == self._targets).mean()), False, self._step == self._steps, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return bool [3 * dials]: for each dial, whether it may go down, stay, and go up."""
        return np.stack([self._dials > 0, np.ones_like(self._dials, np.bool_), self._dials < self._last], axis=1).ravel()

    def _observation(self) -> NDArray[np.float32]:
        numbers = np.concatenate([self._targets - self._dials, 2 * self._dials - self._last])
        return (numbers / self._last).astype(np.float32)
