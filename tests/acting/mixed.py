"""An environment whose actions are integers and continuous numbers, and the masks that belong to observations of dials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Mixed(gymnasium.Env[Any, Any]):
    """A mapping of a gear and of two thrusts; a game ends at random. It refuses actions that are not of its space."""

    _thrusts = np.array([0.0, -np.inf]), np.array([5.0, np.inf])

    def __init__(self) -> None:
        thrust = spaces.Box(*self._thrusts, dtype=np.float64)
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


class Bounded(Mixed):
    """With bounds of both thrusts."""

    _thrusts = np.array([0.0, -2.0]), np.array([5.0, 2.0])


def assert_masks_of_dials(arrays: Mapping[str, Any]) -> None:
    """Check the masks of unrolls [U, ...] of `Dials` against the places of the dials, which their observations show."""
    observations, masks = arrays["observations"], arrays["action_masks"]
    last = 5
    places = np.rint((observations[..., 3:] * last + last) / 2)
    expected = np.stack([places > 0, np.ones_like(places), places < last], axis=-1).reshape(masks.shape)
    played = observations.any(axis=-1)  # rows of no game are zeros, and allow nothing
    ends = arrays["truncated"]  # after which nothing is played, so that everything is allowed
    played[:, 1:] &= ~ends
    assert played.sum() > 3
    assert (masks[played] == expected[played]).all()
    assert not masks[~observations.any(axis=-1)].any()
