"""Rare events of the Atari suite, simulated by scripted emulators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from herd.components.suites import environment_spec
from herd.components.suites.api import Slots
from herd.components.suites.atari import AtariSettings
from herd.components.suites.atari.environments import AtariEnvironments


class ScriptedEmulators:
    """A scripted environment. Entries of ``steps`` are (reward, game_over, lives, frames); entries of ``resets`` are (lives, frames)."""

    def __init__(self, steps: list[tuple[int, bool, int, int]], resets: list[tuple[int, int]]) -> None:
        self.steps, self.resets = iter(steps), iter(resets)
        self.num_resets = 0

    def reset(self, **_options: Any) -> tuple[NDArray[np.uint8], dict[str, NDArray[np.int32]]]:
        self.num_resets += 1
        lives, frames = next(self.resets)
        return self.picture(), {"lives": np.array([lives], np.int32), "episode_frame_number": np.array([frames], np.int32)}

    def step(self, _actions: NDArray[np.int32]) -> tuple[Any, ...]:
        reward, game_over, lives, frames = next(self.steps)
        info = {"lives": np.array([lives], np.int32), "episode_frame_number": np.array([frames], np.int32)}
        return self.picture(), np.array([reward], np.int32), np.array([game_over]), np.array([False]), info

    def picture(self) -> NDArray[np.uint8]:
        return np.zeros((1, 4, 84, 84), np.uint8)

    def close(self) -> None:
        pass


@contextmanager
def scripted(emulators: ScriptedEmulators, settings: AtariSettings) -> Iterator[AtariEnvironments]:
    environments = AtariEnvironments(settings, environment_spec(settings), Slots(num_environments=1, first_slot=0, seed=1, num_threads=1))
    environments._parts[0].emulators.close()
    environments._parts[0].emulators = emulators
    environments.reset()
    yield environments
    environments.close()


def test_a_step_beyond_the_limit_does_not_affect_the_next_game() -> None:
    steps = [(1, False, 3, 8), (2, False, 3, 12), (50, True, 0, 16), (4, False, 3, 6)]
    emulators = ScriptedEmulators(steps, resets=[(3, 2), (3, 2)])
    with scripted(emulators, AtariSettings(max_episode_frames=12)) as environments:
        first, cut, start, after = (environments.step(np.zeros(1, np.int32)) for _ in range(4))
    assert [float(t.rewards[0]) for t in (first, cut, start, after)] == [1.0, 2.0, 0.0, 4.0]
    assert [bool(t.truncated[0]) for t in (first, cut, start, after)] == [False, True, False, False]
    assert [bool(t.terminated[0]) for t in (first, cut, start, after)] == [False] * 4
    assert [bool(t.valid[0]) for t in (first, cut, start, after)] == [True, True, False, True]
    assert [(game.episode_return, game.agent_steps) for game in cut.finished] == [(3.0, 2)]
    assert start.finished == after.finished == ()
    assert emulators.num_resets == 2


def test_a_game_without_a_reward_for_too_long_is_truncated() -> None:
    # Frames since the start of the game (2) or since the last reward: 6, 10 | 4, 8, 12 (a loss is a reward too), then 4, 8, 12.
    steps = [(0, False, 3, 6), (0, False, 3, 10), (-1, False, 3, 14), (0, False, 3, 18), (0, False, 3, 22), (0, False, 3, 26)]
    after = [(50, False, 3, 30), (0, False, 3, 10), (0, False, 3, 14), (0, False, 3, 18)]
    emulators = ScriptedEmulators(steps + after, resets=[(3, 2), (3, 6)])
    with scripted(emulators, AtariSettings(max_frames_without_reward=12)) as environments:
        transitions = [environments.step(np.zeros(1, np.int32)) for _ in range(10)]
    assert [bool(t.truncated[0]) for t in transitions] == [False] * 5 + [True] + [False] * 3 + [True]
    assert [bool(t.valid[0]) for t in transitions] == [True] * 6 + [False] + [True] * 3
    assert [game.episode_return for t in transitions for game in t.finished] == [-1.0, 0.0]


def test_a_reward_in_the_last_allowed_step_avoids_truncation() -> None:
    steps = [(0, False, 3, 6), (0, False, 3, 10), (1, False, 3, 14), (0, False, 3, 18), (0, True, 0, 26)]
    with scripted(ScriptedEmulators(steps, resets=[(3, 2)]), AtariSettings(max_frames_without_reward=12)) as environments:
        transitions = [environments.step(np.zeros(1, np.int32)) for _ in range(5)]
    assert not any(t.truncated[0] for t in transitions)
    assert transitions[-1].terminated[0]  # the game ends by itself in the same step in which patience ends


def test_the_last_life_terminates_only_with_the_game() -> None:
    # Lives are 0 during the game's last animation: a second terminated row would cut the return in two.
    steps = [(0, False, 2, 8), (0, False, 1, 12), (5, False, 0, 16), (7, True, 0, 20)]
    with scripted(ScriptedEmulators(steps, resets=[(2, 2)]), AtariSettings()) as environments:
        transitions = [environments.step(np.zeros(1, np.int32)) for _ in range(4)]
    assert [bool(t.terminated[0]) for t in transitions] == [False, True, False, True]
    assert [len(t.finished) for t in transitions] == [0, 0, 0, 1]
    assert transitions[-1].finished[0].episode_return == 12.0


def test_a_life_lost_at_the_limit_is_terminated_and_ends_the_game() -> None:
    steps = [(1, False, 1, 12), (9, False, 1, 16)]
    with scripted(ScriptedEmulators(steps, resets=[(2, 2), (2, 3)]), AtariSettings(max_episode_frames=12)) as environments:
        cut, start = (environments.step(np.zeros(1, np.int32)) for _ in range(2))
    assert (bool(cut.terminated[0]), bool(cut.truncated[0]), len(cut.finished)) == (True, False, 1)
    assert (bool(start.valid[0]), bool(start.terminated[0]), float(start.rewards[0])) == (False, False, 0.0)


def test_gained_lives_do_not_count_as_lost() -> None:
    steps = [(0, False, 3, 8), (0, False, 4, 12), (0, True, 0, 16), (0, False, 3, 2), (0, False, 3, 6), (0, False, 2, 10)]
    with scripted(ScriptedEmulators(steps, resets=[(3, 2)]), AtariSettings()) as environments:
        transitions = [environments.step(np.zeros(1, np.int32)) for _ in range(6)]
    assert [bool(t.terminated[0]) for t in transitions] == [False, False, True, False, False, True]


def test_games_that_end_during_noops_are_restarted() -> None:
    steps = [(0, True, 0, 8), (0, False, 5, 0)]
    emulators = ScriptedEmulators(steps, resets=[(5, 0), (5, 0), (5, 1), (5, 0), (5, 30)])
    with scripted(emulators, AtariSettings()) as environments:
        assert emulators.num_resets == 3
        environments.step(np.zeros(1, np.int32))
        environments.step(np.zeros(1, np.int32))
    assert emulators.num_resets == 5


def test_an_emulator_that_always_ends_during_noops_is_an_error() -> None:
    with (
        pytest.raises(RuntimeError, match="end every game during"),
        scripted(ScriptedEmulators([], resets=[(5, 0)] * 1_000), AtariSettings()),
    ):
        pass


@pytest.mark.parametrize(("num_threads", "most_at_once", "threads_each"), [(1, 1, 1), (2, 2, 1), (3, 3, 1), (7, 3, 2)])
def test_the_number_of_busy_threads_is_limited(num_threads: int, most_at_once: int, threads_each: int) -> None:
    settings = AtariSettings(tasks=("pong", "breakout", "freeway"), action_set="full")
    environments = AtariEnvironments(
        settings, environment_spec(settings), Slots(num_environments=3, first_slot=0, seed=1, num_threads=num_threads)
    )
    busy, most = set[int](), 0

    class Watched:
        def __init__(self, emulators: Any, index: int) -> None:
            self.emulators, self.index = emulators, index

        def send(self, actions: NDArray[np.int32]) -> None:
            nonlocal most
            busy.add(self.index)
            most = max(most, len(busy))
            self.emulators.send(actions)

        def recv(self) -> Any:
            busy.discard(self.index)
            return self.emulators.recv()

        def close(self) -> None:
            self.emulators.close()

    environments.reset()
    for index, part in enumerate(environments._parts):
        part.emulators = Watched(part.emulators, index)
    environments.step(np.zeros(3, np.int32))
    environments.close()
    assert most == most_at_once
    assert most * threads_each <= num_threads
