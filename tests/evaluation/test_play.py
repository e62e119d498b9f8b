# ruff: noqa: ARG002  fakes take what the interface gives
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from herd.config.contract import EnvSpec
from herd.envs.api import FinishedGame, Observation, Transition
from herd.envs.make import make_environments
from herd.envs.suites.catch.settings import CatchSettings
from herd.evaluation.play import Play, assigned_episodes, play_episodes
from herd.evaluation.policy import PolicyStep

CATCH = CatchSettings(tasks=("catch",), frame_height=10, frame_width=5, frame_stack=1, action_repeat=1)


@dataclass
class BoardReader:
    """Sees ball and paddle on the newest plane and moves the paddle towards the ball, or away from it."""

    avoid: bool = False

    def act(
        self, observation: Observation, core_reset: NDArray[np.bool_], last_actions: NDArray[np.int32], last_rewards: NDArray[np.float32]
    ) -> PolicyStep:
        board = observation.stack[:, -1]
        actions = np.ones(len(board), np.int32)
        for index, plane in enumerate(board):
            paddle = int(plane[-1].argmax())
            ball = int(plane[:-1].any(axis=0).argmax()) if plane[:-1].any() else paddle
            if self.avoid:
                actions[index] = 0 if ball >= 3 else 2
            else:
                actions[index] = 1 + np.sign(ball - paddle)
        return PolicyStep(actions, np.zeros((len(board), 3), np.float32), np.zeros(len(board), np.float32))


@pytest.mark.parametrize(("avoid", "score"), [(False, 1.0), (True, -1.0)])
def test_a_policy_that_always_catches_scores_exactly_one(avoid: bool, score: float) -> None:
    environments = make_environments(CATCH, num_environments=7, first_slot=0, seed=5, num_threads=1)
    games = play_episodes(environments, BoardReader(avoid), 50)
    assert len(games) == 50
    assert {game.episode_return for game in games} == {score}
    assert {game.agent_steps for game in games} == {9}


def test_instructions_are_part_of_the_game() -> None:
    env = CATCH.model_copy(update={"tasks": ("catch", "catch_instructed")})
    environments = make_environments(env, num_environments=4, first_slot=0, seed=5, num_threads=1)
    games = play_episodes(environments, BoardReader(), 40)
    plain = [game.episode_return for game in games if game.task_id == 0]
    instructed = [game.episode_return for game in games if game.task_id == 1]
    assert len(plain) == len(instructed) == 40
    assert set(plain) == {1.0}
    assert set(instructed) == {1.0, -1.0}  # catching against the instruction loses


@dataclass
class ScriptedGames:
    """Environment e plays games of ``lengths[e]`` steps, over and over; game k of it reports the return 100 e + k. Every step rewards 1."""

    lengths: list[list[int]]
    tasks: list[int]
    life_lost_at: int | None = None
    truncate: bool = False
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        self.num_environments = len(self.lengths)
        self.task_ids = np.array(self.tasks, np.int32)
        self.spec = EnvSpec(tuple(f"task{i}" for i in range(max(self.tasks) + 1)), (1, 1, 1), 1, 2, 1, 0)
        self.game = [0] * self.num_environments
        self.steps = [0] * self.num_environments
        self.over = [False] * self.num_environments

    def observe(self, reset: NDArray[np.bool_]) -> Observation:
        return Observation(np.zeros((self.num_environments, 1, 1, 1), np.uint8), reset, None)

    def reset(self) -> Observation:
        return self.observe(np.ones(self.num_environments, np.bool_))

    def step(self, actions: NDArray[np.int32]) -> Transition:
        count = self.num_environments
        reset, ended, lost = np.zeros((3, count), np.bool_)
        rewards = np.zeros(count, np.float32)
        finished = []
        for e in range(count):
            if self.over[e]:
                self.over[e], self.steps[e], self.game[e], reset[e] = False, 0, self.game[e] + 1, True
                continue
            self.steps[e] += 1
            rewards[e] = 1.0
            lost[e] = self.steps[e] == self.life_lost_at
            if self.steps[e] == self.lengths[e][self.game[e] % len(self.lengths[e])]:
                self.over[e] = ended[e] = True
                finished.append(FinishedGame(e, int(self.task_ids[e]), 100.0 * e + self.game[e], self.steps[e]))
        terminated = lost if self.truncate else ended | lost
        truncated = ended & ~terminated if self.truncate else np.zeros(count, np.bool_)
        return Transition(self.observe(reset), rewards, terminated, truncated, ~reset, tuple(finished))

    def close(self) -> None: ...


class Recorder:
    """Acts 1 everywhere and remembers what it was told."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[bool], list[int], list[float]]] = []

    def act(
        self, observation: Observation, core_reset: NDArray[np.bool_], last_actions: NDArray[np.int32], last_rewards: NDArray[np.float32]
    ) -> PolicyStep:
        self.rows.append((core_reset.tolist(), last_actions.tolist(), last_rewards.tolist()))
        count = len(core_reset)
        return PolicyStep(np.ones(count, np.int32), np.zeros((count, 2), np.float32), np.zeros(count, np.float32))


def test_short_games_are_not_favoured() -> None:
    # Environment 0 plays games of 1 and 400 steps in turn, environment 1 only short ones, environment 2 one long game first.
    # The first 12 games to finish would all be short, and nearly all of environment 1.
    environments = ScriptedGames([[1, 400], [1], [300, 2, 2, 2]], [0, 0, 0])
    games = play_episodes(environments, Recorder(), 12)
    assert sorted(game.episode_return for game in games) == [0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203]
    assert sorted(game.agent_steps for game in games) == [1, 1, 1, 1, 1, 1, 2, 2, 2, 300, 400, 400]


def test_the_mean_over_games_of_mixed_length_is_the_population_mean() -> None:
    # Long games are lost (0) and short ones won (1), half of each: counting whatever finishes first would report nearly 1.
    generator = np.random.default_rng(0)
    lengths = [generator.choice([1, 100], size=40).tolist() for _ in range(20)]
    games = play_episodes(ScriptedGames(lengths, [0] * 20), Recorder(), 200)
    won = np.mean([game.agent_steps == 1 for game in games])
    assert won == np.mean([[length == 1 for length in sequence[:10]] for sequence in lengths])
    assert 0.4 < won < 0.6


def test_games_are_dealt_evenly_within_each_task() -> None:
    assert assigned_episodes(np.array([0, 1, 0, 1, 0], np.int32), 7).tolist() == [3, 4, 2, 3, 2]
    assert assigned_episodes(np.array([0, 0, 0], np.int32), 2).tolist() == [1, 1, 0]


def test_every_task_gets_its_games_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    games = play_episodes(ScriptedGames([[1], [50], [2], [3]], [0, 1, 0, 1]), Recorder(), 3, on_progress=lambda *now: told.append(now))
    assert [sum(game.task_id == task for game in games) for task in (0, 1)] == [3, 3]
    assert told[-1] == (6, 6)
    assert [count for count, _ in told] == sorted({count for count, _ in told})


def test_games_stopped_by_the_cap_are_told_apart() -> None:
    assert all(game.truncated for game in play_episodes(ScriptedGames([[3], [4]], [0, 0], truncate=True), Recorder(), 4))
    assert not any(game.truncated for game in play_episodes(ScriptedGames([[3], [4]], [0, 0]), Recorder(), 4))


def test_the_policy_is_told_what_an_actor_tells_it() -> None:
    policy = Recorder()
    play = Play(ScriptedGames([[4]], [0], life_lost_at=2), policy)
    for _ in range(7):
        play.step()
    # Rows: game start, on, after the lost life, on, last observation (terminated), next game's start, on.
    assert [row[0][0] for row in policy.rows] == [True, False, True, False, True, True, False]
    assert [row[1][0] for row in policy.rows] == [-1, 1, -1, 1, -1, -1, 1]
    assert [row[2][0] for row in policy.rows] == [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def test_the_core_goes_on_over_a_truncation_to_the_value_it_bootstraps_from() -> None:
    policy = Recorder()
    play = Play(ScriptedGames([[2]], [0], truncate=True), policy)
    for _ in range(4):
        play.step()
    assert [row[0][0] for row in policy.rows] == [True, False, False, True]
