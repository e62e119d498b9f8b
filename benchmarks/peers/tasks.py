"""The tasks of the comparison, in environments that write down every episode that ends.

This module runs in every program's own virtual environment, so it needs gymnasium and numpy only, and ale-py for Atari.
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
"""Environment variable: the folder for the files of `EpisodeLog`. Without it nothing is written."""


@dataclass(frozen=True)
class Task:
    """A task, the env frames that each program gets, and the return that counts as solved."""

    frames: int
    score: float
    game: str | None = None
    """A game of Atari. Its runs end when they have the score, because whole runs of the slower programs take many hours."""
    deep: bool = False
    """Whether the network is IMPALA's residual one. Such a run is too short to learn, and compares frames per second."""


TASKS = {
    "cartpole": Task(100_000, 475.0),
    "lunarlander": Task(500_000, 200.0),
    "lunarlander_continuous": Task(500_000, 200.0),
    "pendulum": Task(200_000, -200.0),
    "halfcheetah": Task(500_000, 1500.0),
    "dials": Task(100_000, 16.0),
    "dials_masked": Task(100_000, 16.0),
    "pong": Task(10_000_000, 18.0, game="pong"),
    "breakout": Task(10_000_000, 30.0, game="breakout"),
    "breakout_deep": Task(300_000, 30.0, game="breakout", deep=True),
}


class EpisodeLog:
    """A file of its own with a line "Unix time, env frames so far, return" for each episode that ended."""

    def __init__(self) -> None:
        folder = os.environ.get(EPISODES)
        self._file = open(Path(folder, f"{uuid.uuid4().hex}.csv"), "a", buffering=1) if folder else None  # noqa: SIM115
        self._frames = 0

    def add(self, frames: int, episode_return: float) -> None:
        """Write down an episode that ended ``frames`` after the one before."""
        self._frames += frames
        if self._file is not None:
            self._file.write(f"{time.time():.2f},{self._frames},{episode_return:.6g}\n")

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file is not None:
            self._file.close()


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes down an episode when it ends; a step is an env frame."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._log = EpisodeLog()
        self._frames, self._return = 0, 0.0

    def reset(self, **keywords: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        self._return = 0.0
        return super().reset(**keywords)

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        result = super().step(action)
        _, reward, terminated, truncated, _ = result
        self._frames += 1
        self._return += float(reward)
        if terminated or truncated:
            self._log.add(self._frames, self._return)
            self._frames = 0
        return result

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        self._log.close()
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


def _atari(game: str) -> gymnasium.Env[Any, Any]:
    """Return every frame of a game. Programs wrap it in their own preprocessing, so whole games with raw rewards are written down."""
    importlib.import_module("ale_py")  # registers the games
    return Recorded(gymnasium.make(f"{game}NoFrameskip-v4"))


def pong(**_: Any) -> gymnasium.Env[Any, Any]:
    """Atari's Pong, without sticky actions."""
    return _atari("Pong")


def breakout(**_: Any) -> gymnasium.Env[Any, Any]:
    """Atari's Breakout, without sticky actions."""
    return _atari("Breakout")
