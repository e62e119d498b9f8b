"""A suite from another package: a corridor with the exit at its right end; observations are one-hot positions."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from herd.components.settings import PositiveInt
from herd.components.suites import Suite, SuiteSettings, require_known
from herd.components.suites.api import FinishedGame, Observation, Slots, Transition, checked_actions
from herd.components.suites.scores import ReferenceScores
from herd.contract.spaces import NO_FRAMES, EnvSpec, discrete

MAX_STEPS = 50


class CorridorSettings(SuiteSettings):
    """Settings of the corridor."""

    suite: Literal["corridor"] = "corridor"
    """One game: walk to the right."""
    tasks: tuple[str, ...] = ("corridor",)
    """``corridor``."""
    length: PositiveInt = 6
    """Positions; the exit is the last."""

    makes_spaces = ("length",)


class Corridor:
    """E corridors. A step goes left or right, the exit pays 1, and games are truncated after `MAX_STEPS`."""

    def __init__(self, settings: CorridorSettings, spec: EnvSpec, slots: Slots) -> None:
        self.spec = spec
        self.num_environments = num_environments = slots.num_environments
        self.task_ids = slots.task_ids(spec)
        self._exit = settings.length - 1
        self._position = np.zeros(num_environments, np.int64)
        self._steps = np.zeros(num_environments, np.int64)
        self._over = np.ones(num_environments, np.bool_)

    def reset(self) -> Observation:
        self._position[:] = self._steps[:] = 0
        self._over[:] = False
        return self._observation(np.ones(self.num_environments, np.bool_))

    def step(self, actions: NDArray[np.int32]) -> Transition:
        actions = checked_actions(actions, num_environments=self.num_environments, space=self.spec.actions)
        starting = self._over
        moved = np.clip(self._position + 2 * actions - 1, 0, self._exit)
        self._position = np.where(starting, 0, moved)
        self._steps = np.where(starting, 0, self._steps + 1)
        terminated = ~starting & (self._position == self._exit)
        truncated = ~starting & ~terminated & (self._steps == MAX_STEPS)
        self._over = terminated | truncated
        finished = tuple(FinishedGame(int(e), 0, float(terminated[e]), int(self._steps[e])) for e in np.flatnonzero(self._over))
        return Transition(self._observation(starting), terminated.astype(np.float32), terminated, truncated, ~starting, finished)

    def close(self) -> None:
        pass

    def _observation(self, game_reset: NDArray[np.bool_]) -> Observation:
        vector = np.eye(self.spec.vector_size, dtype=np.float32)[self._position]
        return Observation(np.zeros((self.num_environments, 0, 0, 0), np.uint8), game_reset, None, vector)


def _spec(settings: CorridorSettings) -> EnvSpec:
    require_known(settings.tasks, ("corridor",), "corridor")
    return EnvSpec(settings.tasks, NO_FRAMES, 1, discrete(2), settings.action_repeat, 0, vector_size=settings.length)


SUITE = Suite(
    kind="corridor",
    settings=CorridorSettings,
    code=f"{__name__}:Corridor",
    spec=_spec,
    reference_scores=lambda: {"corridor": ReferenceScores("corridor", 0.0, 1.0, None, None)},
)
