"""Starts, ends, seeds, slots and threads of the Atari suite."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms
from numpy.typing import NDArray

from herd.components.suites import make_environments
from herd.components.suites.api import BatchedEnvironment, Transition
from herd.components.suites.atari import AtariSettings, atari_scores
from herd.components.suites.atari.start import game_start


def make(
    settings: AtariSettings, num_environments: int = 2, *, first_slot: int = 0, seed: int = 1, num_threads: int = 1
) -> BatchedEnvironment:
    return make_environments(settings, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_threads)


def play(environments: BatchedEnvironment, num_steps: int, seed: int = 0) -> list[Transition]:
    """Play random actions. Stacks are not copied, so tests may read only the other arrays of earlier transitions."""
    random = np.random.default_rng(seed)
    actions = (
        random.integers(environments.spec.actions.num_actions, size=environments.num_environments, dtype=np.int32) for _ in range(num_steps)
    )
    return [environments.step(action) for action in actions]


def stacks_of(environments: BatchedEnvironment, actions: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Stacks [1 + T, E, ...] of a reset and of the given actions [T, E]."""
    stacks = [environments.reset().stack.copy()]
    stacks.extend(environments.step(action).observation.stack.copy() for action in actions)
    environments.close()
    return np.stack(stacks)


def test_noops_are_uniform_from_one_to_the_maximum() -> None:
    # Freeway's traffic moves at every frame, so the first screen shows the number of no-ops.
    emulator = ALEInterface()
    emulator.setLoggerMode(LoggerMode.Error)
    emulator.setFloat("repeat_action_probability", 0.0)
    rom = roms.get_rom_path("freeway")
    assert rom is not None
    emulator.loadROM(rom)
    emulator.reset_game()
    after_noops = {}
    for noops in range(9):
        after_noops[emulator.getScreenGrayscale().tobytes()] = noops
        emulator.act(0)
    assert len(after_noops) == 9
    settings = AtariSettings(tasks=("freeway",), frame_height=210, frame_width=160, frame_stack=1, noop_max=5, max_episode_frames=1)
    environments = make(settings, 8)
    counts = np.zeros(9, np.int64)
    environments.reset()
    # Every game is cut off at once, so every second step starts new games.
    for _ in range(2 * 20):
        after = environments.step(np.zeros(8, np.int32))
        for stack in after.observation.stack[after.observation.game_reset]:
            counts[after_noops[stack.tobytes()]] += 1
    environments.close()
    assert counts.sum() == 8 * 20
    assert (counts[[0, 6, 7, 8]] == 0).all()
    # The expected count of each is 32; 12 is four standard deviations below (sqrt(160 * 0.2 * 0.8) = 5.1).
    assert counts[1:6].min() >= 12


@pytest.mark.parametrize(("sticky", "least"), [(0.0, 13 + 1 + 1), (0.25, None)])
def test_double_dunk_starts_at_a_random_time_under_sticky_actions(sticky: float, least: int | None) -> None:
    start = game_start("double_dunk", full_action_set=False, fire_on_reset=True, sticky_action_probability=sticky)
    assert start.fire_frames == 1
    assert start.frames_before_noops == (None if least is None else least - 1)
    environments = make(AtariSettings(tasks=("double_dunk",), sticky_action_probability=sticky, noop_max=2))
    assert environments.reset().game_reset.all()
    environments.close()


@pytest.mark.processes  # takes twenty seconds on one core
def test_all_57_games_have_their_actions_and_run_together() -> None:
    starts, told = {}, {}
    for game, reference in atari_scores().items():
        starts[game] = game_start(game, full_action_set=False, fire_on_reset=False, sticky_action_probability=0.0)
        assert starts[game].num_actions == reference.minimal_actions, game
        full = game_start(game, full_action_set=True, fire_on_reset=False, sticky_action_probability=0.0)
        assert full.num_actions == 18, game
        told[game] = full.emulator_actions
    assert {game for game, actions in told.items() if actions is not None} == {"skiing"}
    late = {game: start.frames_before_noops for game, start in starts.items() if start.frames_before_noops}
    assert late == {"berzerk": 20, "double_dunk": 13, "name_this_game": 134, "surround": 1, "yars_revenge": 7}

    settings = AtariSettings(tasks=("atari57",), action_set="full", noop_max=0, max_episode_frames=12)
    environments = make(settings, 57, num_threads=3)
    assert environments.task_ids.tolist() == list(range(57))
    environments.reset()
    num_valid = np.zeros(57, np.int64)
    for action in range(18):
        num_valid += environments.step(np.full(57, action, np.int32)).valid
    environments.close()
    # A game starts after its own menu frames. The longer the menu, the fewer steps remain until the limit; then a step is invalid.
    assert num_valid.min() >= 18 // 2
    assert num_valid.max() == 18 - 18 // 4


def test_games_depend_on_slot_and_seed_only() -> None:
    settings = AtariSettings(tasks=("seaquest",), sticky_action_probability=0.25, max_episode_frames=160)
    actions = np.random.default_rng(0).integers(18, size=(60, 1), dtype=np.int32).repeat(4, axis=1)
    together, other = (stacks_of(make(settings, 4, seed=seed), actions) for seed in (1, 2))
    assert (together[:, 2:] == stacks_of(make(settings, 2, first_slot=2), actions[:, :2])).all()
    for e in range(4):
        assert (together[:, e] != other[:, e]).any()
        for slot in range(e):
            assert (together[:, e] != together[:, slot]).any()


@pytest.mark.parametrize(("num_threads", "grayscale"), [(1, True), (5, False)])
def test_several_games_are_assigned_in_turn_and_play_as_alone(num_threads: int, grayscale: bool) -> None:
    shared = {"action_set": "full", "max_episode_frames": 120, "noop_max": 3, "frame_stack": 2, "grayscale": grayscale}
    games = ("pong", "breakout", "ms_pacman")
    settings = AtariSettings(tasks=games, **shared)
    actions = np.random.default_rng(0).integers(18, size=(36, 4), dtype=np.int32)
    environments = make(settings, 4, first_slot=1, num_threads=num_threads)
    assert environments.task_ids.dtype == np.int32
    assert environments.task_ids.tolist() == [1, 2, 0, 1]
    together = stacks_of(environments, actions)
    for task, game in enumerate(games):
        alone = stacks_of(make(AtariSettings(tasks=(game,), **shared), 4, first_slot=1), actions)
        mine = environments.task_ids == task
        assert (together[:, mine] == alone[:, mine]).all(), game


def test_finished_games_carry_their_task_and_there_may_be_more_games_than_environments() -> None:
    games = ("pong", "breakout", "qbert", "freeway")
    environments = make(AtariSettings(tasks=games, action_set="full", max_episode_frames=40, noop_max=0), 3, first_slot=2)
    assert environments.task_ids.tolist() == [2, 3, 0]
    assert environments.reset().stack.any(axis=(1, 2, 3)).all()
    finished = [game for after in play(environments, 12) for game in after.finished]
    environments.close()
    assert [(game.environment, game.task_id) for game in finished] == [(0, 2), (1, 3), (2, 0)]


def test_skiing_ignores_the_fire_button() -> None:
    """Its emulator rejects the button: a button pressed together with a direction is ignored."""
    minimal = {"NOOP": 0, "RIGHT": 1, "LEFT": 2}
    full = {"NOOP": 0, "RIGHT": 3, "LEFT": 4, "FIRE": 1, "RIGHTFIRE": 11, "LEFTFIRE": 12}
    played = ["RIGHT", "RIGHT", "NOOP", "LEFT", "LEFT", "LEFT", "NOOP", "RIGHT"] * 5
    with_button = ["FIRE" if name == "NOOP" else f"{name}FIRE" for name in played]
    seen = [
        stacks_of(
            make(AtariSettings(tasks=("skiing",), action_set=action_set, noop_max=0)),
            np.array([[numbers[name]] * 2 for name in names], np.int32),
        )
        for action_set, numbers, names in (("minimal", minimal, played), ("full", full, played), ("full", full, with_button))
    ]
    assert (seen[0] == seen[1]).all()
    assert (seen[0] == seen[2]).all()
    assert (seen[0][-1] != stacks_of(make(AtariSettings(tasks=("skiing",), noop_max=0)), np.zeros((40, 2), np.int32))[-1]).any()


@pytest.mark.parametrize(("tasks", "grayscale"), [(("pong",), True), (("pong",), False), (("pong", "breakout"), True)])
def test_arrays_of_the_previous_step_are_not_overwritten(tasks: tuple[str, ...], grayscale: bool) -> None:
    environments = make(AtariSettings(tasks=tasks, action_set="full", grayscale=grayscale, max_episode_frames=60))
    environments.reset()
    transitions = [environments.step(np.full(2, t % 18, np.int32)) for t in range(1)]
    copies = [transitions[0].observation.stack.copy()]
    for t in range(40):
        after = environments.step(np.full(2, t % 18, np.int32))
        assert (transitions[-1].observation.stack == copies[-1]).all()
        transitions.append(after)
        copies.append(after.observation.stack.copy())
    # Something must have moved; otherwise the comparison would prove nothing.
    assert any((a != b).any() for a, b in pairwise(copies))
    environments.close()


def test_a_second_reset_starts_new_games_with_zero_returns() -> None:
    environments = make(AtariSettings(tasks=("breakout",), sticky_action_probability=0.25, max_episode_frames=400), 4)
    first = environments.reset().stack.copy()
    play(environments, 120)
    second = environments.reset()
    assert second.game_reset.all()
    assert not second.stack[:, :3].any()
    assert first.shape == second.stack.shape
    transitions = play(environments, 100)
    environments.close()
    game = next(game for after in transitions for game in after.finished)
    end = next(t for t, after in enumerate(transitions) if after.finished)
    assert game.agent_steps == end + 1
    assert game.episode_return == sum(after.rewards[game.environment] for after in transitions[: end + 1])


@pytest.mark.parametrize("actions", [[0, 4], [-1, 0], [0], [0, 0, 0], [[0, 0]]])
def test_invalid_actions_are_refused_without_blocking(actions: list[int]) -> None:
    environments = make(AtariSettings(tasks=("breakout",)))
    environments.reset()
    with pytest.raises(ValueError, match="actions must"):
        environments.step(np.array(actions, np.int32))
    assert environments.step(np.zeros(2, np.int32)).valid.all()
    environments.close()


def test_the_requested_threads_are_started_and_end_with_close() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    environments = make(AtariSettings(tasks=("pong",)), 3, num_threads=1)
    assert threads() == before + 1
    environments.close()
    environments.close()
    assert threads() == before


@pytest.mark.processes
def test_spaces_are_known_without_importing_the_emulator() -> None:
    code = (
        "import sys\n"
        "from herd.components.suites.atari import AtariSettings\n"
        "from herd.components.suites import environment_spec\n"
        "assert environment_spec(AtariSettings(tasks=('pong',))).actions.num_actions == 6\n"
        "sys.exit(', '.join({'ale_py', 'gymnasium', 'torch'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr == ""
