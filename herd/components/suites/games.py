"""What every suite keeps of its E running games: their returns and lengths, and the stacks of their newest frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.components.suites.api import FinishedGame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.contract.spaces import EnvSpec


class Games:
    """Counts the return and the steps of each game until it ends."""

    def __init__(self, task_ids: NDArray[np.int32]) -> None:
        self._task_ids = task_ids
        self._returns = np.zeros(len(task_ids), np.float64)
        self._steps = np.zeros(len(task_ids), np.int64)
        self.over = np.zeros(len(task_ids), np.bool_)
        """[E]: whether the game has ended, so that the next step only starts another."""

    def begin(self) -> None:
        """Start a new game in every environment."""
        self._returns[:], self._steps[:] = 0.0, 0
        self.over = np.zeros_like(self.over)

    def count(self, starting: NDArray[np.bool_], rewards: NDArray[np.floating], over: NDArray[np.bool_]) -> tuple[FinishedGame, ...]:
        """Count one step of each game, except where it was ``starting``; return the games that are ``over``. All [E]."""
        self._returns[starting], self._steps[starting] = 0.0, 0
        self._returns += np.where(starting, 0.0, rewards)
        self._steps += ~starting
        self.over = over
        return tuple(
            FinishedGame(int(e), int(self._task_ids[e]), float(self._returns[e]), int(self._steps[e])) for e in np.flatnonzero(over)
        )


class FrameStacks:
    """The newest S frames of each environment. Planes before a game's first frame are 0."""

    def __init__(self, spec: EnvSpec, num_environments: int) -> None:
        height, width, channels = spec.frame_shape
        shape = (num_environments, spec.frame_stack, channels, height, width)
        # Two buffers are used in turn, so that the result of the previous call stays valid.
        self._older, self._newer = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)

    def add(self, frames: NDArray[np.uint8], game_reset: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the stacks with ``frames`` [E, C, H, W] as the newest, [E, S * C, H, W]; those at ``game_reset`` [E] restart."""
        newer = self._newer
        newer[:, :-1] = self._older[:, 1:]
        newer[game_reset] = 0
        newer[:, -1] = frames
        self._older, self._newer = newer, self._older
        return newer.reshape(len(newer), -1, *newer.shape[3:])
