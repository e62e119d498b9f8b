"""The fitness of a member of a population: its scores in its newest games."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from herd.components.suites.scores import human_normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from herd.components.suites.scores import ReferenceScores


class FitnessWindow:
    """The newest games of all tasks, at most ``num_games``, since the member has its present weights.

    Games that were under way when it got them, at most one per environment, also count.
    """

    def __init__(self, task_names: Sequence[str], references: Mapping[str, ReferenceScores], *, num_games: int) -> None:
        """``references``: known reference scores, by task."""
        self._names = task_names
        self._references = references
        self._games: deque[tuple[int, float]] = deque(maxlen=num_games)

    @property
    def games(self) -> list[tuple[int, float]]:
        """(task_id, raw return) of each, oldest first."""
        return list(self._games)

    @property
    def is_full(self) -> bool:
        """Whether there are enough games."""
        return len(self._games) == self._games.maxlen

    def add(self, task_id: int, episode_return: float) -> None:
        """Add a finished game."""
        self._games.append((task_id, episode_return))

    def begin(self, games: Iterable[tuple[int, float]] = ()) -> None:
        """Replace the games."""
        self._games.clear()
        self._games.extend((int(task_id), float(episode_return)) for task_id, episode_return in games)

    def episode_return(self) -> float | None:
        """Mean raw return; None before the window is full."""
        return math.fsum(episode_return for _, episode_return in self._games) / len(self._games) if self.is_full else None

    def human_normalised(self) -> float | None:
        """Mean over tasks of the human-normalised mean return, each at most 1; None before the window is full, with a game of each."""
        if not self.is_full:
            return None
        returns: dict[int, list[float]] = {task_id: [] for task_id in range(len(self._names))}
        for task_id, episode_return in self._games:
            returns[task_id].append(episode_return)
        if not all(returns.values()):
            return None
        scores = [
            min(1.0, float(human_normalised(math.fsum(games) / len(games), self._references[self._names[task_id]])))
            for task_id, games in returns.items()
        ]
        return math.fsum(scores) / len(scores)
