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


LIMIT, PATIENCE = {"max_episode_frames": 12}, {"max_frames_without_reward": 12}
# Steps are (reward, game over, lives, frames). Rows are (reward, flags): T terminated, C truncated (cut off), - invalid.
EVENTS: dict[str, tuple[dict[str, int], list[tuple[int, int]], list[tuple[int, bool, int, int]], str, list[tuple[float, int]]]] = {
    "a step beyond the limit does not affect the next game": (
        LIMIT,
        [(3, 2), (3, 2)],
        [(1, False, 3, 8), (2, False, 3, 12), (50, True, 0, 16), (4, False, 3, 6)],
        "1, 2C, 0-, 4",
        [(3.0, 2)],
    ),
    # Frames since the start of the game (2) or since the last reward: 6, 10 | 4, 8, 12 (a loss is a reward too), then 4, 8, 12.
    "a game without a reward for too long is truncated": (
        PATIENCE,
        [(3, 2), (3, 6)],
        [
            (reward, False, 3, frames)
            for reward, frames in zip((0, 0, -1, 0, 0, 0, 50, 0, 0, 0), (*range(6, 34, 4), 10, 14, 18), strict=True)
        ],
        "0, 0, -1, 0, 0, 0C, 0-, 0, 0, 0C",
        [(-1.0, 6), (0.0, 3)],
    ),
    # The game ends by itself in the same step in which patience ends.
    "a reward in the last allowed step avoids truncation": (
        PATIENCE,
        [(3, 2)],
        [(0, False, 3, 6), (0, False, 3, 10), (1, False, 3, 14), (0, False, 3, 18), (0, True, 0, 26)],
        "0, 0, 1, 0, 0T",
        [(1.0, 5)],
    ),
    # Lives are 0 during the game's last animation: a second terminated row would cut the return in two.
    "the last life terminates only with the game": (
        {},
        [(2, 2)],
        [(0, False, 2, 8), (0, False, 1, 12), (5, False, 0, 16), (7, True, 0, 20)],
        "0, 0T, 5, 7T",
        [(12.0, 4)],
    ),
    "a life lost at the limit is terminated and ends the game": (
        LIMIT,
        [(2, 2), (2, 3)],
        [(1, False, 1, 12), (9, False, 1, 16)],
        "1T, 0-",
        [(1.0, 1)],
    ),
    "gained lives do not count as lost": (
        {},
        [(3, 2)],
        [(0, False, 3, 8), (0, False, 4, 12), (0, True, 0, 16), (0, False, 3, 2), (0, False, 3, 6), (0, False, 2, 10)],
        "0, 0, 0T, 0-, 0, 0T",
        [(0.0, 3)],
    ),
}


@pytest.mark.parametrize("event", EVENTS)
def test_rare_events_end_rows_and_games_once(event: str) -> None:
    switches, resets, steps, expected, finished = EVENTS[event]
    emulators = ScriptedEmulators(steps, resets)
    with scripted(emulators, AtariSettings(**switches)) as environments:
        rows = [environments.step(np.zeros(1, np.int32)) for _ in steps]
    flags = [("T" * bool(row.terminated[0]) + "C" * bool(row.truncated[0]) + "-" * (not row.valid[0])) for row in rows]
    assert ", ".join(f"{row.rewards[0]:g}{flag}" for row, flag in zip(rows, flags, strict=True)) == expected
    assert [(game.episode_return, game.agent_steps) for row in rows for game in row.finished] == finished
    assert emulators.num_resets == len(resets)


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
