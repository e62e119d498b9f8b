"""The ViZDoom suite against ViZDoom's own scenarios, and against games played by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import pytest
import vizdoom
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from herd.components.suites import make_environments, suite_named
from herd.components.suites.api import BatchedEnvironment
from herd.components.suites.solo import Played
from herd.components.suites.vizdoom import SCENARIOS, ViZDoomSettings, actions_of
from herd.components.suites.vizdoom.game import Game

NOTHING = 0


@contextmanager
def environments(settings: ViZDoomSettings, num_environments: int, first_slot: int = 0, seed: int = 5) -> Iterator[BatchedEnvironment]:
    made = make_environments(settings, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_environments)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def by_hand(task: str) -> Iterator[Any]:
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, f"{task}.cfg"))
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_window_visible(False)
    game.set_sound_enabled(False)
    game.set_doom_config_path("doom.ini")
    game.init()
    try:
        yield game
    finally:
        game.close()


@pytest.mark.parametrize("task", SCENARIOS)
def test_buttons_match_the_scenario_files(task: str) -> None:
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, f"{task}.cfg"))
    assert tuple(button.name for button in game.get_available_buttons()) == SCENARIOS[task]


def test_actions_combine_the_buttons_of_all_tasks() -> None:
    assert actions_of(["basic"]) == ((), ("MOVE_LEFT",), ("MOVE_RIGHT",), ("ATTACK",))
    assert actions_of(["take_cover"]) == ((), ("MOVE_LEFT",), ("MOVE_RIGHT",))
    turning = ("TURN_LEFT",), ("TURN_RIGHT",), ("MOVE_FORWARD", "TURN_LEFT"), ("MOVE_FORWARD", "TURN_RIGHT")
    assert actions_of(["health_gathering"]) == ((), ("MOVE_FORWARD",), *turning)
    sides = ("MOVE_LEFT",), ("MOVE_RIGHT",)
    assert actions_of(["health_gathering", "basic"]) == ((), ("MOVE_FORWARD",), *sides, *turning, ("ATTACK",))
    assert len(actions_of(["deadly_corridor"])) == len(actions_of(SCENARIOS)) == 10


@pytest.mark.processes
@pytest.mark.parametrize(("task", "size", "repeat"), [("basic", (96, 72), 4), ("health_gathering", (160, 120), 3)])
def test_rows_match_games_played_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, size: tuple[int, int], repeat: int
) -> None:
    """Plays over the ends of games, with several tasks: actions are the union over the tasks, and the slot determines the seed."""
    monkeypatch.chdir(tmp_path)  # the engine leaves files in the current folder
    settings = ViZDoomSettings(tasks=("my_way_home", task), frame_width=size[0], frame_height=size[1], action_repeat=repeat)
    actions = np.random.default_rng(2).integers(len(actions_of(settings.tasks)), size=450, dtype=np.int32)
    held = actions_of(settings.tasks)
    seeds = np.random.default_rng((5, 7, 1))
    with environments(settings, 1, first_slot=7) as made, by_hand(task) as game:
        assert made.task_ids.tolist() == [1]

        def begin() -> None:
            game.set_seed(int(seeds.integers(2**31)))
            game.new_episode()

        def screen() -> NDArray[np.uint8]:
            buffer: NDArray[np.uint8] = game.get_state().screen_buffer
            return buffer if size == (160, 120) else cv2.resize(buffer, size, interpolation=cv2.INTER_AREA).astype(np.uint8)

        begin()
        over, last, games = False, screen(), 0
        assert_array_equal(made.reset().stack[0], last.transpose(2, 0, 1))
        for action in actions:
            transition = made.step(np.array([action], np.int32))
            if over:
                begin()
                over, last = False, screen()
                assert not transition.valid[0]
                assert transition.observation.game_reset[0]
            else:
                reward = game.make_action([float(button in held[action]) for button in SCENARIOS[task]], repeat)
                assert transition.rewards[0] == np.float32(reward)
                over = game.is_episode_finished()
                assert transition.terminated[0] | transition.truncated[0] == over
                if over:
                    games += 1
                    assert transition.finished[0].episode_return == pytest.approx(game.get_total_reward())
                else:
                    last = screen()
            assert_array_equal(transition.observation.stack[0], last.transpose(2, 0, 1))
        assert games >= 2


@pytest.mark.processes
def test_a_timeout_truncates_and_death_terminates() -> None:
    settings = ViZDoomSettings(tasks=("basic", "defend_the_center"))
    ends: dict[int, list[tuple[bool, bool, int]]] = {0: [], 1: []}
    with environments(settings, 2) as made:
        made.reset()
        for _ in range(200):
            transition = made.step(np.array([NOTHING, NOTHING], np.int32))
            for game in transition.finished:
                e = game.environment
                ends[e].append((bool(transition.terminated[e]), bool(transition.truncated[e]), game.agent_steps))
    # Without shooting, a game has 300 tics at four a step; raising the weapon takes the first ones.
    assert ends[0] == list(itertools.repeat((False, True, 75), len(ends[0])))
    assert len(ends[0]) == 2
    assert ends[1]
    assert all(terminated and not truncated for terminated, truncated, _ in ends[1])


@pytest.mark.parametrize(("dead", "timed_out"), [(True, False), (False, True), (True, True)])
def test_death_at_the_timeout_is_a_termination(dead: bool, timed_out: bool) -> None:
    game = Game.__new__(Game)
    game._actions, game._action_repeat = [[0.0]], 4
    game._game = mock.Mock(**{"make_action.return_value": -1.0, "is_episode_finished.return_value": True})
    game._game.is_player_dead.return_value = dead
    game._game.is_episode_timeout_reached.return_value = timed_out
    assert game.step(0) == Played(None, -1.0, terminated=dead, truncated=not dead)


@pytest.mark.processes
def test_a_killed_engine_leaves_no_files() -> None:
    before = set(os.listdir("/dev/shm"))
    with environments(ViZDoomSettings(), 2) as made:
        made.reset()
        assert set(os.listdir("/dev/shm")) <= before
        made._players[0].process.kill()  # type: ignore[attr-defined]
        folder = Path(made._folder.name)  # type: ignore[attr-defined]
        assert made.step(np.zeros(2, np.int32)).valid.tolist() == [False, True]
    assert not folder.exists()
    assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.processes
def test_the_screen_view_shows_the_same_game() -> None:
    suite = suite_named("vizdoom")
    assert suite.on_screen is not None
    settings = ViZDoomSettings(tasks=("deadly_corridor",), frame_stack=2)
    shown = suite.on_screen(settings)
    assert isinstance(shown, ViZDoomSettings)
    with environments(settings, 1) as played, environments(shown, 1) as screen:
        assert screen.spec.frame_shape == (240, 320, 3)
        played.reset()
        screen.reset()
        actions = np.random.default_rng(1).integers(played.spec.actions.num_actions, size=80, dtype=np.int32)
        for action in actions:
            one, other = played.step(np.array([action], np.int32)), screen.step(np.array([action], np.int32))
            assert one.rewards[0] == other.rewards[0]
            assert one.finished == other.finished
        small = cv2.resize(other.observation.stack[0].transpose(1, 2, 0), (96, 72), interpolation=cv2.INTER_AREA)
        difference = np.abs(one.observation.stack[0, 3:].transpose(1, 2, 0).astype(int) - small)
        assert difference.mean() < 12  # drawn at another size
