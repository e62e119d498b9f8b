"""Plays a policy in its environments step by step, and chooses games so that scores are unbiased."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from herd.acting.policy import LocalPolicy, inference_precision
from herd.acting.row_state import RowState
from herd.acting.temperatures import RangeTemperatures, Temperatures
from herd.components.suites import environment_spec, make_environments
from herd.evaluation.protocols import EvaluationError
from herd.service.host import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from herd.acting.policy import Policy, PolicyStep
    from herd.acting.temperatures import Bounds
    from herd.agent import Agent
    from herd.components.suites import SuiteSettings
    from herd.components.suites.api import BatchedEnvironment, Observation, Transition
    from herd.config.run import RunSettings

    TemperaturesOf = Callable[[NDArray[np.int32]], Temperatures]
    """Maps the tasks of environments, [E] by the run's numbers, to the temperatures of their games."""

# Default number of games played at once: large enough for efficient inference, small enough that waiting for the last long games
# takes little time.
_ENVIRONMENTS = 32
MAX_IDLE_STEPS = 200_000
"""Agent steps of every environment in which a game should end: the longest games of Atari have 108,000, with an action repeat of 1."""
_LONG_LIST = 4
"""Number of tasks from which on progress shows their number instead of their names."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One agent step of all E environments."""

    observation: Observation
    """The row for which actions were chosen."""
    choice: PolicyStep
    transition: Transition


class Play:
    """Environments and policy together, with the same rows as in training.

    So the recurrent core is reset at a lost life if it was in training.
    """

    def __init__(self, environments: BatchedEnvironment, policy: Policy[Any], state: RowState) -> None:
        self.task_ids = environments.task_ids
        """[E]."""
        self._environments = environments
        self._policy = policy
        self._state = state
        self._observation = environments.reset()

    def step(self) -> PlayedStep:
        """Take one action in every environment."""
        observation = self._observation
        choice = self._policy.collect(self._policy.submit(self._state.rows(observation)))
        transition = self._environments.step(choice.actions)
        self._state.advance(choice, transition)
        self._observation = transition.observation
        return PlayedStep(observation, choice, transition)


def start_play(
    agent: Agent, settings: RunSettings, environments: BatchedEnvironment, *, seed: int, greedy: bool, temperatures: Temperatures
) -> Play:
    """Start to play with the weights of ``agent``. ``seed`` is the random seed of the policy's sampling."""
    policy = LocalPolicy(agent, seed=seed, precision=inference_precision(settings), greedy=greedy)
    state = RowState(environments.spec, settings.network, temperatures, num_environments=environments.num_environments)
    return Play(environments, policy, state)


def drawn_from(ranges: Sequence[Bounds] | None, *, seed: int) -> TemperaturesOf:
    """Return temperatures drawn from each task's range of 1/tau; ``ranges`` None: tau is 1."""
    return lambda task_ids: Temperatures() if ranges is None else RangeTemperatures(ranges, task_ids, seed)


@dataclass(frozen=True, slots=True)
class Game:
    """One whole game with all its lives."""

    task_id: int
    """Number of the task in the run."""
    episode_return: float
    """Sum of raw rewards."""
    agent_steps: int
    truncated: bool
    """Whether the game was ended by the limit of frames."""


def assigned_episodes(task_ids: NDArray[np.int32], episodes: int) -> NDArray[np.int64]:
    """Return the number of games that each environment plays, [E], so that every task of ``task_ids`` [E] has ``episodes`` games.

    The numbers are fixed in advance. Counting the first games that finish in any environment would favour short games: while one
    environment plays a long game, others finish many short ones.
    """
    quotas = np.zeros(len(task_ids), dtype=np.int64)
    for task_id in np.unique(task_ids):
        slots = np.flatnonzero(task_ids == task_id)
        quotas[slots] = episodes // len(slots)
        quotas[slots[: episodes % len(slots)]] += 1
    return quotas


def play_episodes(
    play: Play,
    episodes: int,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    while_playing: Callable[[], None] | None = None,
) -> Sequence[Game]:
    """Play ``episodes`` games of every task: the first games of each environment, up to its assigned number.

    ``on_progress(finished, wanted)`` is called whenever a wanted game has finished, ``while_playing`` before each step. An environment
    that has played its assigned games is stepped further, but its games are not counted.

    Raises:
        EvaluationError: no game ends.
        KeyboardInterrupt: with the result so far.

    """
    quotas = assigned_episodes(play.task_ids, episodes)
    wanted = int(quotas.sum())
    played: Counter[int] = Counter()
    games: list[Game] = []
    idle_steps = 0
    while len(games) < wanted:
        if idle_steps == MAX_IDLE_STEPS:
            ended = f"no game that counts has ended in {MAX_IDLE_STEPS:,} steps ({_so_far(games, wanted)})"
            raise EvaluationError(f"{ended}: end games in the environment, or with --env.max_episode_frames or --env.max_episode_steps")
        try:
            if while_playing is not None:
                while_playing()
            transition = play.step().transition
        except KeyboardInterrupt as end:
            raise KeyboardInterrupt(_so_far(games, wanted)) from end
        before = len(games)
        for finished in transition.finished:
            slot = finished.environment
            if played[slot] < quotas[slot]:
                played[slot] += 1
                games.append(Game(finished.task_id, finished.episode_return, finished.agent_steps, bool(transition.truncated[slot])))
        idle_steps = 0 if len(games) > before else idle_steps + 1
        if on_progress is not None and len(games) > before:
            on_progress(len(games), wanted)
    return games


def _so_far(games: Sequence[Game], wanted: int) -> str:
    mean = f", mean return {np.mean([game.episode_return for game in games]):.2f}" if games else ""
    return f"{len(games)} of {wanted} games ended{mean}"


def play_tasks(
    agent: Agent,
    settings: RunSettings,
    episodes: int,
    *,
    seed: int,
    greedy: bool = False,
    environments: int | None = None,
    temperatures: TemperaturesOf = lambda _: Temperatures(),
    on_progress: Callable[[str, int, int], None] | None = None,
    while_playing: Callable[[], None] | None = None,
) -> list[Game]:
    """Play ``episodes`` games of every task, one task after the other, so that no task waits for the long games of another.

    Args:
        agent: the network that plays.
        settings: the settings of its run, with ``env`` as it is played.
        episodes: number of games per task.
        seed: random seed of games and of the policy's sampling.
        greedy: take the most probable action instead of sampling.
        environments: number of games played at once; None: chosen automatically.
        temperatures: temperatures of DiCE's games.
        on_progress: called with (name of what is played, number of finished games, number of wanted games).
        while_playing: called before each step, and between environments that are stepped one by one; an exception that it raises ends the
            play.

    Raises:
        EvaluationError: the number of environments does not fit the tasks.
        UnknownTaskError: packages of the suite are missing.

    """
    env = settings.env
    names = environment_spec(env).task_names
    groups = task_groups(env)
    games: list[Game] = []
    for number, group in enumerate(groups, start=1):
        own_names = environment_spec(group).task_names
        ids = np.array([names.index(name) for name in own_names], np.int32)
        label = ", ".join(own_names) if len(own_names) < _LONG_LIST else f"{len(own_names)} tasks"
        if len(groups) > 1:
            label += f" ({number} of {len(groups)})"
        count = num_environments(environments, episodes=episodes, num_tasks=len(own_names))
        batch = make_environments(
            group,
            num_environments=count,
            first_slot=0,
            seed=seed,
            num_threads=min(usable_cpus(), count),
            beat=while_playing or (lambda: None),
        )
        try:
            play = start_play(agent, settings, batch, seed=seed, greedy=greedy, temperatures=temperatures(ids[batch.task_ids]))
            told = None if on_progress is None else partial(on_progress, label)
            played = play_episodes(play, episodes, on_progress=told, while_playing=while_playing)
        finally:
            batch.close()
        games += [replace(game, task_id=int(ids[game.task_id])) for game in played]
    return games


def task_groups(env: SuiteSettings) -> list[SuiteSettings]:
    """Return the settings of each group of tasks that is played together.

    Each of ``env.tasks`` is a group of its own, unless it would have other spaces alone; then all tasks are one group.
    """
    together = environment_spec(env)
    alone = [env.model_copy(update={"tasks": (task,)}) for task in env.tasks]
    specs = [environment_spec(each) for each in alone]
    covers_all = sorted(name for spec in specs for name in spec.task_names) == sorted(together.task_names)
    return alone if covers_all and all(replace(spec, task_names=together.task_names) == together for spec in specs) else [env]


def num_environments(requested: int | None, *, episodes: int, num_tasks: int) -> int:
    """Return the number of games played at once, a multiple of ``num_tasks``; EvaluationError if ``requested`` is not one."""
    if requested is not None:
        if requested % num_tasks:
            raise EvaluationError(f"environments must be a multiple of the {num_tasks} tasks, not {requested}")
        return min(requested, episodes * num_tasks)
    # The smallest number with which all play equally many games, up to one, so that none waits for many games of another.
    per_task = min(episodes, max(1, _ENVIRONMENTS // num_tasks))
    return num_tasks * math.ceil(episodes / math.ceil(episodes / per_task))
