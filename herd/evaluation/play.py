"""A policy in its environments, step by step, and the choice of games that makes a score unbiased."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.acting.policy import LocalPolicy, inference_precision
from herd.acting.row_state import RowState
from herd.acting.temperatures import RangeTemperatures, Temperatures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from herd.acting.policy import Policy, PolicyStep
    from herd.acting.temperatures import Bounds
    from herd.envs.api import BatchedEnvironment, Observation, Transition
    from herd.evaluation.trained_run import TrainedRun


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One agent step of all E environments."""

    observation: Observation
    """The row that was acted on."""
    choice: PolicyStep
    transition: Transition


class Play:
    """Environments and policy together, with the same rows as in training.

    So the core starts anew at a lost life where it did in training: the policy knows no other life.
    """

    def __init__(self, environments: BatchedEnvironment, policy: Policy[Any], state: RowState) -> None:
        self.task_ids = environments.task_ids
        """[E]."""
        self._environments = environments
        self._policy = policy
        self._state = state
        self._observation = environments.reset()

    def step(self) -> PlayedStep:
        """Act once in every environment."""
        observation = self._observation
        choice = self._policy.collect(self._policy.submit(self._state.rows(observation)))
        transition = self._environments.step(choice.actions)
        self._state.advance(choice, transition)
        self._observation = transition.observation
        return PlayedStep(observation, choice, transition)


def start_play(
    run: TrainedRun, environments: BatchedEnvironment, *, seed: int, greedy: bool, ranges: Sequence[Bounds] | None = None
) -> Play:
    """Begin to play with a run's weights; ``ranges`` of 1/tau by task, None: tau is 1. ``seed`` is of the policy's sampling."""
    policy = LocalPolicy(run.agent, seed=seed, precision=inference_precision(run.settings), greedy=greedy)
    temperatures = Temperatures() if ranges is None else RangeTemperatures(ranges, environments.task_ids, seed)
    state = RowState(run.spec, run.settings.network, temperatures, num_environments=environments.num_environments)
    return Play(environments, policy, state)


@dataclass(frozen=True, slots=True)
class Game:
    """One whole game, of all its lives."""

    task_id: int
    episode_return: float
    """Sum of raw rewards."""
    agent_steps: int
    truncated: bool
    """Stopped by the frame cap."""


def assigned_episodes(task_ids: NDArray[np.int32], episodes: int) -> NDArray[np.int64]:
    """Games each environment is to play, [E], so that every task of ``task_ids`` [E] gets ``episodes`` of them.

    Fixed before play begins. Taking the first games to finish, from whichever environment, would favour short games: while one
    environment plays a long one, its neighbours finish many short ones.
    """
    quotas = np.zeros(len(task_ids), dtype=np.int64)
    for task_id in np.unique(task_ids):
        slots = np.flatnonzero(task_ids == task_id)
        quotas[slots] = episodes // len(slots)
        quotas[slots[: episodes % len(slots)]] += 1
    return quotas


def play_episodes(play: Play, episodes: int, *, on_progress: Callable[[int, int], None] | None = None) -> Sequence[Game]:
    """Play ``episodes`` games of every task: the first games of each environment, up to its assigned number.

    ``on_progress(finished, wanted)`` is called whenever a wanted game finished. An environment that has played its share is stepped
    on, and what it plays is not counted.
    """
    quotas = assigned_episodes(play.task_ids, episodes)
    wanted = int(quotas.sum())
    played: Counter[int] = Counter()
    games: list[Game] = []
    while len(games) < wanted:
        transition = play.step().transition
        before = len(games)
        for finished in transition.finished:
            slot = finished.environment
            if played[slot] < quotas[slot]:
                played[slot] += 1
                games.append(Game(finished.task_id, finished.episode_return, finished.agent_steps, bool(transition.truncated[slot])))
        if on_progress is not None and len(games) > before:
            on_progress(len(games), wanted)
    return games
