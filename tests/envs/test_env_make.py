from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from herd.components.suites import environment_spec, make_environments
from herd.components.suites.api import UnknownTaskError
from herd.components.suites.atari import AtariSettings
from herd.components.suites.catch import CatchSettings
from herd.contract.spaces import EnvSpec, discrete


@pytest.mark.parametrize(
    ("switches", "shape", "num_actions", "channels"),
    [
        ({}, (84, 84, 1), 4, 4),
        ({"tasks": ("pong",), "action_set": "full"}, (84, 84, 1), 18, 4),
        ({"tasks": ("pong", "breakout"), "action_set": "full"}, (84, 84, 1), 18, 4),
        ({"grayscale": False, "frame_height": 72, "frame_width": 96, "frame_stack": 2}, (72, 96, 3), 4, 6),
    ],
)
def test_the_specs_of_suites_have_the_expected_spaces(
    switches: dict[str, Any], shape: tuple[int, int, int], num_actions: int, channels: int
) -> None:
    settings = AtariSettings(**switches)
    spec = environment_spec(settings)
    assert spec == EnvSpec(settings.tasks, shape, settings.frame_stack, discrete(num_actions), settings.action_repeat, 0)
    assert spec.observation_channels == channels


def test_a_spec_has_an_instruction_length_if_a_task_has_instructions() -> None:
    assert environment_spec(CatchSettings()) == EnvSpec(("catch",), (10, 5, 1), 1, discrete(3), 1, 0)
    assert environment_spec(CatchSettings(tasks=("catch", "catch_instructed"))).instruction_length == 16


@pytest.mark.parametrize(
    ("suite", "task", "hint"),
    [
        ("atari", "brekout", "breakout"),
        ("atari", "MsPacman", "ms_pacman"),
        ("atari", "ALE/SpaceInvaders-v5", "space_invaders"),
        ("atari", "KungFuMasterNoFrameskip-v4", "kung_fu_master"),
        ("atari", "catch", "known: alien"),
        ("catch", "catch_instruct", "catch_instructed"),
        ("catch", "breakout", "known: catch, catch_instructed, catch_deceptive"),
    ],
)
def test_unknown_tasks_are_refused_with_a_suggestion(suite: str, task: str, hint: str) -> None:
    settings = {"atari": AtariSettings, "catch": CatchSettings}[suite](tasks=(task,))
    with pytest.raises(UnknownTaskError) as raised:
        environment_spec(settings)
    assert repr(task) in str(raised.value)
    assert hint in str(raised.value)
    with pytest.raises(UnknownTaskError):
        make_environments(settings, num_environments=1, first_slot=0, seed=1, num_threads=1)


@pytest.mark.parametrize("wrong", [{"num_environments": 0}, {"num_threads": 0}, {"first_slot": -1}, {"seed": -1}])
def test_impossible_counts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        make_environments(AtariSettings(), **({"num_environments": 1, "first_slot": 0, "seed": 1, "num_threads": 1} | wrong))


def test_a_board_of_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="frame_height"):
        environment_spec(CatchSettings(tasks=("catch",), frame_height=1))


def test_slots_are_assigned_to_tasks_in_turn() -> None:
    settings = CatchSettings(tasks=("catch", "catch_instructed"), frame_height=4, frame_width=3)
    environments = make_environments(settings, num_environments=5, first_slot=3, seed=1, num_threads=1)
    assert environments.task_ids.dtype == np.int32
    assert environments.task_ids.tolist() == [1, 0, 1, 0, 1]
