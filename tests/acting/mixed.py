"""An environment whose actions are integers and continuous numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Mixed(gymnasium.Env[Any, Any]):
    """A mapping of a gear and of two thrusts; a game ends at random. It refuses actions that are not of its space."""

    def __init__(self) -> None:
        thrust = spaces.Box(np.array([0.0, -np.inf]), np.array([5.0, np.inf]), dtype=np.float64)
        self.action_space = spaces.Dict(thrust=thrust, gear=spaces.Discrete(3, start=1))
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        reward = float(action["gear"] + action["thrust"].sum())
        return self._observation(), reward, bool(self.np_random.random() < 0.2), False, {}

    def _observation(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
