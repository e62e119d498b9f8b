from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from herd.components.suites import make_environments
from herd.components.suites.api import BatchedEnvironment, Observation, Transition
from herd.components.suites.catch import CatchSettings
from herd.components.suites.reading import hash_instruction

ROWS, COLUMNS = 6, 5
CATCH, AVOID = hash_instruction("catch the ball"), hash_instruction("avoid the ball")


def make(
    task: str = "catch", num_environments: int = 16, *, tasks: tuple[str, ...] = (), first_slot: int = 0, seed: int = 1, **switches: Any
) -> BatchedEnvironment:
    board = {"frame_height": ROWS, "frame_width": COLUMNS, "action_repeat": 1, "frame_stack": 1}
    settings = CatchSettings(tasks=tasks or (task,), **(board | switches))
    return make_environments(settings, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=1)


def columns_of(observation: Observation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns [E] of ball and paddle in the newest plane, while the ball is above the last row."""
    newest = observation.stack[:, -1]
    return newest[:, :-1].max(axis=1).argmax(axis=1), newest[:, -1].argmax(axis=1)


def follow(observation: Observation) -> NDArray[np.int32]:
    ball, paddle = columns_of(observation)
    return np.asarray(1 + np.sign(ball - paddle), np.int32)


def play(
    environments: BatchedEnvironment, num_steps: int, policy: Callable[[Observation], NDArray[np.int32]]
) -> list[tuple[Observation, Transition]]:
    row, pairs = environments.reset(), []
    for _ in range(num_steps):
        after = environments.step(policy(row))
        pairs.append((row, after))
        row = after.observation
    return pairs


def test_the_board_shows_ball_and_paddle_as_documented() -> None:
    environments = make(num_environments=1, frame_stack=2)
    row = environments.reset()
    ball = int(columns_of(row)[0][0])
    stack = row.stack.copy()
    for step, (action, paddle) in enumerate([(0, 1), (0, 0), (0, 0), (2, 1), (2, 2)], start=1):
        after = environments.step(np.array([action], np.int32))
        expected = np.zeros((ROWS, COLUMNS), np.uint8)
        expected[step, ball] = expected[ROWS - 1, paddle] = 255
        np.testing.assert_array_equal(after.observation.stack[0, 1], expected)
        np.testing.assert_array_equal(after.observation.stack[0, 0], stack[0, 1])
        stack = after.observation.stack.copy()
    assert after.terminated.tolist() == [True]
    assert after.rewards.tolist() == [1.0 if ball == 2 else -1.0]


def test_following_the_ball_always_wins() -> None:
    for task in ("catch", "catch_deceptive"):
        followed = [game.episode_return for _, after in play(make(task), 100, follow) for game in after.finished]
        assert len(followed) > 200
        assert set(followed) == {1.0}


def test_autoreset_takes_one_invalid_step() -> None:
    pairs = play(make(), 3 * ROWS, follow)
    for t, (_, after) in enumerate(pairs):
        ends, resets = t % ROWS == ROWS - 2, t % ROWS == ROWS - 1
        assert after.terminated.all() == after.terminated.any() == ends
        assert not after.truncated.any()
        assert after.valid.all() == after.valid.any() == (not resets)
        assert after.observation.game_reset.all() == after.observation.game_reset.any() == resets
        assert (after.rewards != 0).any() == ends
        assert [game.agent_steps for game in after.finished] == ([ROWS - 1] * 16 if ends else [])
        assert [game.environment for game in after.finished] == (list(range(16)) if ends else [])


def test_the_action_of_an_invalid_step_has_no_effect() -> None:
    first, second = make(), make()
    for environments, during_reset in ((first, 0), (second, 2)):
        environments.reset()
        for _ in range(ROWS - 1):
            environments.step(np.ones(16, np.int32))
        environments.step(np.full(16, during_reset, np.int32))
    a, b = (environments.step(np.ones(16, np.int32)).observation.stack for environments in (first, second))
    np.testing.assert_array_equal(a, b)


def test_action_repeat_moves_several_frames_per_step() -> None:
    environments = make(action_repeat=2, num_environments=8)
    ball, _ = columns_of(environments.reset())
    left = environments.step(np.zeros(8, np.int32))
    assert (columns_of(left.observation)[1] == 0).all()
    assert (left.observation.stack[np.arange(8), -1, 2, ball] == 255).all()
    environments.step(np.ones(8, np.int32))
    # The ball falls for five frames: the third step ends at its first frame, and the rest of the step is dropped.
    last = environments.step(np.full(8, 2, np.int32))
    assert last.terminated.all()
    assert (last.observation.stack[:, -1, -1, 1] == 255).all()
    np.testing.assert_array_equal(last.rewards, np.where(ball == 1, 1.0, -1.0))


def test_the_limit_truncates_and_does_not_terminate() -> None:
    for t, (_, after) in enumerate(play(make(max_episode_frames=3), 12, follow)):
        assert after.truncated.all() == after.truncated.any() == (t % 4 == 2)
        assert after.valid.all() == after.valid.any() == (t % 4 != 3)
        assert not after.terminated.any()
        assert [(game.agent_steps, game.episode_return) for game in after.finished] == ([(3, 0.0)] * 16 if t % 4 == 2 else [])


def test_an_end_at_the_limit_is_a_termination() -> None:
    pairs = play(make(max_episode_frames=ROWS - 1), ROWS - 1, follow)
    assert pairs[-1][1].terminated.all()
    assert not pairs[-1][1].truncated.any()


def test_instructions_decide_the_sign_of_the_reward() -> None:
    seen = {tuple(CATCH): 0, tuple(AVOID): 0}
    environments = make("catch_instructed")
    row = environments.reset()
    for _ in range(40 * ROWS):
        assert row.instructions is not None
        assert row.instructions.dtype == np.int64
        instructions = row.instructions.copy()
        after = environments.step(follow(row))
        for game in after.finished:
            words = tuple(instructions[game.environment])
            seen[words] += 1
            assert game.episode_return == (1.0 if words == tuple(CATCH) else -1.0)
        row = after.observation
        # An instruction belongs to its game: the game's last row still has it.
        assert row.instructions is not None
        np.testing.assert_array_equal(row.instructions[after.valid], instructions[after.valid])
    # Of 640 games 320 are expected; four standard deviations are 51.
    assert min(seen.values()) > 269


def test_plain_catch_beside_instructed_catch_has_empty_instructions() -> None:
    row = make(tasks=("catch", "catch_instructed"), num_environments=4).reset()
    assert row.instructions is not None
    assert row.instructions.any(axis=1).tolist() == [False, True, False, True]
    assert make().reset().instructions is None


def test_a_miss_in_the_safe_corner_pays_a_little() -> None:
    environments = make("catch_deceptive")
    row = environments.reset()
    assert row.instructions is None
    seen: set[tuple[str, float]] = set()
    for aim in (0, 1, 4):  # where the paddle goes, whatever the ball does
        for _ in range(10 * ROWS):
            ball, paddle = columns_of(row)
            after = environments.step(np.asarray(1 + np.sign(aim - paddle), np.int32))
            for game in after.finished:
                missed = "corner" if aim == 0 else "elsewhere"
                seen.add(("caught" if ball[game.environment] == aim else missed, round(game.episode_return, 6)))
            row = after.observation
    assert seen == {("caught", 1.0), ("corner", 0.2), ("elsewhere", -1.0)}


def test_games_depend_on_seed_and_slot_only() -> None:
    def balls(**where: int) -> NDArray[np.int64]:
        environments = make(**where)  # type: ignore[arg-type]
        return np.stack([columns_of(environments.reset())[0] for _ in range(40)])

    together = balls(num_environments=8)
    np.testing.assert_array_equal(together, balls(num_environments=8))
    np.testing.assert_array_equal(together[:, 5:], balls(num_environments=3, first_slot=5))
    assert (together != balls(num_environments=8, seed=2)).any(axis=0).all()
    assert all((together[:, e] != together[:, other]).any() for e in range(8) for other in range(e))
    # Every column is equally likely: 64 of 320 are expected, and four standard deviations are 29.
    counts = np.bincount(together.ravel(), minlength=COLUMNS)
    assert counts.min() > 35
    assert counts.max() < 93


def test_a_reset_during_games_starts_new_ones() -> None:
    environments = make()
    play(environments, 3, follow)
    row = environments.reset()
    assert row.game_reset.all()
    for _ in range(ROWS - 1):
        after = environments.step(follow(row))
        row = after.observation
    assert [(game.agent_steps, game.episode_return) for game in after.finished] == [(ROWS - 1, 1.0)] * 16


def test_reward_scales_multiply_tasks_that_look_the_same() -> None:
    settings = CatchSettings(tasks=("catch", "catch_deceptive"), reward_scales=(1.0, 1000.0), frame_height=ROWS, frame_width=COLUMNS)
    environments = make_environments(settings, num_environments=8, first_slot=2, seed=1, num_threads=1)
    assert environments.spec.task_names == ("catch", "catch_x1000", "catch_deceptive", "catch_deceptive_x1000")
    assert environments.task_ids.tolist() == [2, 3, 0, 1, 2, 3, 0, 1]
    left = play(environments, 60 * ROWS, lambda _row: np.zeros(8, np.int32))
    games = [game for _, after in left for game in after.finished]
    returns = {task: {round(game.episode_return, 3) for game in games if game.task_id == task} for task in range(4)}
    assert returns == {0: {-1.0, 1.0}, 1: {-1000.0, 1000.0}, 2: {0.2, 1.0}, 3: {200.0, 1000.0}}
    rewards = np.concatenate([after.rewards[after.terminated & (environments.task_ids == 1)] for _, after in left])
    assert set(np.abs(rewards).tolist()) == {1000.0}


def test_a_slow_game_is_the_same_game(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("herd.components.suites.catch.environments.time.sleep", waited.append)
    fast, slow = (play(make(step_seconds=seconds), 3 * ROWS, follow) for seconds in (0.0, 0.25))
    assert waited == [0.25] * 3 * ROWS
    for (_, one), (_, other) in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one.observation.stack, other.observation.stack)
        np.testing.assert_array_equal(one.rewards, other.rewards)
