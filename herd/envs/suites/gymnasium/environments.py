"""A batch of gymnasium's environments, stepped as its vector environments.

Gymnasium's NextStep autoreset is the same as Herd's: the step after a game's end only starts the next game, whatever its action. Its worker
processes (``vectorization: async``) are on this machine and communicate only with this process, through multiprocessing's pipes and shared
memory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from herd.envs.api import BrokenEnvironmentError, FinishedGame, Observation, Transition, checked_actions, dealt_task_ids
from herd.envs.reading import FRAME, VECTOR, WORDS
from herd.envs.suites.gymnasium.rows import make_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.contract.spaces import EnvSpec
    from herd.envs.suites.gymnasium.settings import GymnasiumSettings

_NUM_SEEDS = 2**31
"""Largest seed that every environment accepts; larger numbers overflow in some."""


class GymnasiumEnvironments:
    """A ``BatchedEnvironment`` over a vector environment of gymnasium."""

    def __init__(
        self, settings: GymnasiumSettings, spec: EnvSpec, *, num_environments: int, first_slot: int, seed: int, num_threads: int
    ) -> None:
        self.spec = spec
        self.num_environments = num_environments
        self.task_ids = dealt_task_ids(num_environments=num_environments, first_slot=first_slot, num_tasks=len(spec.task_names))
        makers = [partial(make_rows, settings, spec.task_names[task_id]) for task_id in self.task_ids]
        if settings.vectorization == "sync":
            self._vector: Any = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
        else:
            # A forked process would inherit locks of threads and open sockets.
            self._vector = AsyncVectorEnv(
                makers, copy=False, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP, max_concurrency=num_threads
            )
        # Consecutive numbers are distinct over all slots of a run; the first one depends on the run's seed.
        first_seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self._seeds: list[int] | None = [(first_seed + first_slot + slot) % _NUM_SEEDS for slot in range(num_environments)]
        # Two buffers are used in turn, so that the arrays of the previous call stay valid.
        height, width, channels = spec.frame_shape
        self._stacks = [np.zeros((num_environments, spec.frame_stack, channels, height, width), np.uint8) for _ in range(2)]
        self._over = np.zeros(num_environments, np.bool_)
        self._return = np.zeros(num_environments, np.float64)
        self._steps = np.zeros(num_environments, np.int64)

    def reset(self) -> Observation:
        """Start a new game in every environment; the first call seeds."""
        row, _ = self._vector.reset(seed=self._seeds)
        self._seeds = None
        for counter in (self._over, self._return, self._steps):
            counter[:] = 0
        return self._observe(row, np.ones(self.num_environments, np.bool_))

    def step(self, actions: NDArray[np.int32]) -> Transition:
        """Step every game; those that are over are restarted instead."""
        actions = checked_actions(actions, num_environments=self.num_environments, num_actions=self.spec.num_actions)
        starting = self._over
        row, rewards, terminated, truncated, _ = self._vector.step(actions)
        self._refuse_non_finite(rewards, "reward")
        self._return[starting] = 0.0
        self._steps[starting] = 0
        self._return += rewards
        self._steps += ~starting
        self._over = terminated | truncated
        finished = tuple(
            FinishedGame(int(e), int(self.task_ids[e]), float(self._return[e]), int(self._steps[e])) for e in np.flatnonzero(self._over)
        )
        observation = self._observe(row, starting)
        return Transition(observation, rewards.astype(np.float32), terminated, truncated & ~terminated, ~starting, finished)

    def close(self) -> None:
        """End the worker processes, if there are any."""
        self._vector.close()

    def _observe(self, row: dict[str, NDArray[Any]], game_reset: NDArray[np.bool_]) -> Observation:
        """Copy what the vector environment will overwrite; add frames to the stacks, which restart at ``game_reset``."""
        older, newer = self._stacks
        if FRAME in row:
            newer[:, :-1] = older[:, 1:]
            newer[game_reset] = 0
            newer[:, -1] = row[FRAME].transpose(0, 3, 1, 2)
            self._stacks = [newer, older]
        vector = None
        if VECTOR in row:
            vector = row[VECTOR].copy()
            self._refuse_non_finite(vector, "observation")
        stack = newer.reshape(self.num_environments, -1, *self.spec.frame_shape[:2]) if FRAME in row else newer[:, 0]
        return Observation(stack, game_reset, row[WORDS].copy() if WORDS in row else None, vector)

    def _refuse_non_finite(self, numbers: NDArray[Any], what: str) -> None:
        if not np.isfinite(numbers).all():
            [first, *_] = np.flatnonzero(~np.isfinite(numbers).reshape(self.num_environments, -1).all(axis=1))
            raise BrokenEnvironmentError(f"{self.spec.task_names[self.task_ids[first]]} returned a {what} that is not a finite number")
