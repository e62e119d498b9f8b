"""A policy in its environments, step by step, and the choice of games that makes a score unbiased."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.config.contract import NO_ACTION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from herd.envs.api import BatchedEnvironment, Observation, Transition
    from herd.evaluation.policy import ActingPolicy, PolicyStep


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One agent step of all E environments."""

    observation: Observation
    """The row that was acted on."""
    choice: PolicyStep
    transition: Transition


class Play:
    """Environments and policy together, with the same rows as in training.

    The core is reset, and last action and reward forgotten, where a game starts and after ``terminated``: also at a lost life where
    training did so, because the policy knows no other life.
    """

    def __init__(self, environments: BatchedEnvironment, policy: ActingPolicy) -> None:
        self._environments = environments
        self._policy = policy
        self._observation = environments.reset()
        num_environments = environments.num_environments
        self._core_reset = np.ones(num_environments, dtype=np.bool_)
        self._last_actions = np.full(num_environments, NO_ACTION, dtype=np.int32)
        self._last_rewards = np.zeros(num_environments, dtype=np.float32)

    def step(self) -> PlayedStep:
        """Act once in every environment."""
        observation = self._observation
        choice = self._policy.act(observation, self._core_reset, self._last_actions, self._last_rewards)
        transition = self._environments.step(choice.actions)
        self._observation = transition.observation
        self._core_reset = transition.terminated | transition.observation.game_reset
        self._last_actions = np.where(self._core_reset, NO_ACTION, choice.actions).astype(np.int32)
        self._last_rewards = np.where(self._core_reset, np.float32(0), transition.rewards)
        return PlayedStep(observation, choice, transition)


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


def play_episodes(
    environments: BatchedEnvironment,
    policy: ActingPolicy,
    episodes: int,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Sequence[Game]:
    """Play ``episodes`` games of every task: the first games of each environment, up to its assigned number.

    ``on_progress(finished, wanted)`` is called whenever a wanted game finished. An environment that has played its share is stepped
    on, and what it plays is not counted.
    """
    quotas = assigned_episodes(environments.task_ids, episodes)
    wanted = int(quotas.sum())
    played: Counter[int] = Counter()
    games: list[Game] = []
    play = Play(environments, policy)
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
