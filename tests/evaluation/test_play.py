# ruff: noqa: ARG002  fakes take what the interface gives
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from herd.acting.policy import PolicyStep, Rows
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.components.suites import make_environments
from herd.components.suites.api import BatchedEnvironment, FinishedGame, Observation, Transition
from herd.components.suites.catch import CatchSettings
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.config.run import NetworkSettings
from herd.contract.spaces import EnvSpec, discrete
from herd.evaluation import play as playing
from herd.evaluation.play import Game, Play, assigned_episodes, play_episodes
from herd.evaluation.protocols import EvaluationError

CATCH = CatchSettings(tasks=("catch",), frame_height=10, frame_width=5, frame_stack=1, action_repeat=1)


Chooses = Callable[[Rows], NDArray[np.int32]]
"""One action for each environment."""


@dataclass
class Scripted:
    """Acts immediately, as ``chooses`` says."""

    chooses: Chooses

    def submit(self, rows: Rows) -> PolicyStep:
        actions = self.chooses(rows)
        return PolicyStep(actions, np.zeros((len(actions), 3), np.float32), np.zeros(len(actions), np.float32), rows.core_state)

    def collect(self, ticket: PolicyStep) -> PolicyStep:
        return ticket


def play_of(environments: BatchedEnvironment, chooses: Chooses) -> Play:
    state = RowState(
        environments.spec, NetworkSettings(torso=MLPTorsoSettings()), Temperatures(), num_environments=environments.num_environments
    )
    return Play(environments, Scripted(chooses), state)


def played(
    environments: BatchedEnvironment, episodes: int, chooses: Chooses = lambda rows: np.ones_like(rows.last_actions)
) -> Sequence[Game]:
    return play_episodes(play_of(environments, chooses), episodes)


def to_the_ball(rows: Rows) -> NDArray[np.int32]:
    """Read ball and paddle from the newest plane, and move the paddle towards the ball."""
    assert rows.frames is not None
    board = rows.frames[:, -1]
    actions = np.ones(len(board), np.int32)
    for index, plane in enumerate(board):
        paddle = int(plane[-1].argmax())
        ball = int(plane[:-1].any(axis=0).argmax()) if plane[:-1].any() else paddle
        actions[index] = 1 + np.sign(ball - paddle)
    return actions


def test_a_policy_that_always_catches_scores_exactly_1_and_instructions_matter() -> None:
    env = CATCH.model_copy(update={"tasks": ("catch", "catch_instructed")})
    environments = make_environments(env, num_environments=4, first_slot=0, seed=5, num_threads=1)
    games = played(environments, 40, to_the_ball)
    plain = [game.episode_return for game in games if game.task_id == 0]
    instructed = [game.episode_return for game in games if game.task_id == 1]
    assert len(plain) == len(instructed) == 40
    assert set(plain) == {1.0}
    assert set(instructed) == {1.0, -1.0}  # catching the ball against the instruction loses
    assert {game.agent_steps for game in games} == {9}


@dataclass
class ScriptedGames:
    """Environment e repeats games of ``lengths[e]`` steps; its game k has the return 100 e + k. Every step has reward 1."""

    lengths: list[list[int]]
    tasks: list[int]
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        self.num_environments = len(self.lengths)
        self.task_ids = np.array(self.tasks, np.int32)
        self.spec = EnvSpec(tuple(f"task{i}" for i in range(max(self.tasks) + 1)), (1, 1, 1), 1, discrete(2), 1, 0)
        self.game = [0] * self.num_environments
        self.steps = [0] * self.num_environments
        self.over = [False] * self.num_environments

    def observe(self, reset: NDArray[np.bool_]) -> Observation:
        return Observation(np.zeros((self.num_environments, 1, 1, 1), np.uint8), reset, None)

    def reset(self) -> Observation:
        return self.observe(np.ones(self.num_environments, np.bool_))

    def step(self, actions: NDArray[np.int32]) -> Transition:
        count = self.num_environments
        reset, ended, never = np.zeros((3, count), np.bool_)
        rewards = np.zeros(count, np.float32)
        finished = []
        for e in range(count):
            if self.over[e]:
                self.over[e], self.steps[e], self.game[e], reset[e] = False, 0, self.game[e] + 1, True
                continue
            self.steps[e] += 1
            rewards[e] = 1.0
            if self.steps[e] == self.lengths[e][self.game[e] % len(self.lengths[e])]:
                self.over[e] = ended[e] = True
                finished.append(FinishedGame(e, int(self.task_ids[e]), 100.0 * e + self.game[e], self.steps[e]))
        return Transition(self.observe(reset), rewards, ended, never, ~reset, tuple(finished))

    def close(self) -> None: ...


def test_short_games_are_not_favoured() -> None:
    # Environment 0 alternates games of 1 and 400 steps, environment 1 plays only short ones, and environment 2 plays one long game first.
    # The first 12 games to finish would all be short, most of them from environment 1.
    environments = ScriptedGames([[1, 400], [1], [300, 2, 2, 2]], [0, 0, 0])
    games = played(environments, 12)
    assert sorted(game.episode_return for game in games) == [0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203]
    assert sorted(game.agent_steps for game in games) == [1, 1, 1, 1, 1, 1, 2, 2, 2, 300, 400, 400]


def test_games_are_assigned_evenly_within_each_task() -> None:
    assert assigned_episodes(np.array([0, 1, 0, 1, 0], np.int32), 7).tolist() == [3, 4, 2, 3, 2]
    assert assigned_episodes(np.array([0, 0, 0], np.int32), 2).tolist() == [1, 1, 0]


def test_games_without_end_and_an_interruption_report_the_result_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "MAX_IDLE_STEPS", 50)
    endless = ScriptedGames([[3, 10**6], [3]], [0, 0])
    said = r"^no game that counts has ended in 50 steps \(3 of 4 games ended, mean return 67\.00\): end games in the environment"
    with pytest.raises(EvaluationError, match=said):
        played(endless, 4)

    def interrupt() -> None:
        if play.step().transition.finished:
            raise KeyboardInterrupt

    play = play_of(ScriptedGames([[3], [5]], [0, 0]), lambda rows: np.ones_like(rows.last_actions))
    with pytest.raises(KeyboardInterrupt, match="0 of 2 games ended"):
        play_episodes(play, 2, while_playing=interrupt)


def test_every_task_gets_its_games_and_progress_is_reported() -> None:
    told: list[tuple[int, int]] = []
    play = play_of(ScriptedGames([[1], [50], [2], [3]], [0, 1, 0, 1]), lambda rows: np.ones_like(rows.last_actions))
    games = play_episodes(play, 3, on_progress=lambda *now: told.append(now))
    assert [sum(game.task_id == task for game in games) for task in (0, 1)] == [3, 3]
    assert told[-1] == (6, 6)
    assert [count for count, _ in told] == sorted({count for count, _ in told})
