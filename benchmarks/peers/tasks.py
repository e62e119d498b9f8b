"""The tasks of the comparison, in environments that write down every episode that ends.

This module runs in every program's own virtual environment, so it needs gymnasium and numpy only.
"""

from __future__ import annotations

import importlib.util
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

EPISODES = "PEERS_EPISODES"
"""Environment variable: the folder for the files of `Recorded`. Without it nothing is written."""


@dataclass(frozen=True)
class Task:
    """A task, the env frames that each program gets, and the return that counts as solved."""

    frames: int
    score: float


TASKS = {
    "cartpole": Task(100_000, 475.0),
    "lunarlander": Task(500_000, 200.0),
    "lunarlander_continuous": Task(500_000, 200.0),
    "pendulum": Task(200_000, -200.0),
    "halfcheetah": Task(500_000, 1500.0),
    "dials": Task(100_000, 16.0),
    "dials_masked": Task(100_000, 16.0),
}


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Appends a line "Unix time, steps of this copy so far, return" to a file of its own when an episode ends."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        folder = os.environ.get(EPISODES)
        self._file = open(Path(folder, f"{uuid.uuid4().hex}.csv"), "a", buffering=1) if folder else None  # noqa: SIM115
        self._steps, self._return = 0, 0.0

    def reset(self, **keywords: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        self._return = 0.0
        return super().reset(**keywords)

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        result = super().step(action)
        _, reward, terminated, truncated, _ = result
        self._steps += 1
        self._return += float(reward)
        if self._file is not None and (terminated or truncated):
            self._file.write(f"{time.time():.2f},{self._steps},{self._return:.6g}\n")
        return result

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        if self._file is not None:
            self._file.close()
        super().close()


class AnyTurn(gymnasium.ActionWrapper[Any, Any, Any]):
    """Dials without a mask: a turn that is not possible leaves the dial where it is."""

    def action(self, action: Any) -> Any:
        """Replace what the mask forbids."""
        allowed = self.env.unwrapped.action_masks().reshape(-1, 3)  # type: ignore[attr-defined]
        return np.where(allowed[np.arange(len(allowed)), action], action, 1)


class Masked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows the mask of the environment inside, as sb3-contrib and Herd ask for it."""

    def action_masks(self) -> Any:
        """See the environment inside."""
        return self.env.unwrapped.action_masks()  # type: ignore[attr-defined]


def _made(*names: str) -> gymnasium.Env[Any, Any]:
    """Return the first of some versions of an environment that this gymnasium has."""
    return gymnasium.make(next(name for name in names if name in gymnasium.registry))


def _dials() -> gymnasium.Env[Any, Any]:
    """Return Herd's example, read from its file because the other programs' environments lack Herd."""
    path = Path(__file__).parents[2] / "herd/components/suites/gymnasium/examples.py"
    specification = importlib.util.spec_from_file_location("examples", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.Dials()  # type: ignore[no-any-return]


def cartpole() -> gymnasium.Env[Any, Any]:
    """Balance a pole: four numbers, two actions."""
    return Recorded(_made("CartPole-v1"))


def lunarlander() -> gymnasium.Env[Any, Any]:
    """Land between flags: eight numbers, four actions."""
    return Recorded(_made("LunarLander-v3", "LunarLander-v2"))


def lunarlander_continuous() -> gymnasium.Env[Any, Any]:
    """Land between flags with two throttles."""
    return Recorded(_made("LunarLanderContinuous-v3", "LunarLanderContinuous-v2"))


def pendulum() -> gymnasium.Env[Any, Any]:
    """Swing a pendulum up: three numbers, one torque."""
    return Recorded(_made("Pendulum-v1"))


def halfcheetah() -> gymnasium.Env[Any, Any]:
    """Run in MuJoCo: 17 numbers, six torques."""
    return Recorded(_made("HalfCheetah-v4"))


def dials() -> gymnasium.Env[Any, Any]:
    """Turn three dials to their targets: three actions of three values each."""
    return Recorded(AnyTurn(_dials()))


def dials_masked() -> gymnasium.Env[Any, Any]:
    """Turn three dials to their targets under a mask; what it forbids is an error."""
    return Masked(Recorded(_dials()))
