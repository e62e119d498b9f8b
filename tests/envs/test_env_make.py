"""What all suites have in common: their spaces, tasks that do not exist, slots, and packages that are not installed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from herd.components.suites import SuiteSettings, environment_spec, make_environments
from herd.components.suites.api import UnknownTaskError
from herd.components.suites.atari import AtariSettings
from herd.components.suites.catch import CatchSettings
from herd.components.suites.dmlab import DMLabSettings
from herd.components.suites.reading import MAX_WORDS, NUM_BUCKETS, hash_instruction
from herd.components.suites.vizdoom import ViZDoomSettings
from herd.contract.spaces import EnvSpec, discrete

LEVELS = ("rooms_watermaze", "contributed/psychlab/harlow", "lt_chasm")


@pytest.mark.parametrize(
    ("settings", "shape", "stack", "num_actions", "num_words"),
    [
        (AtariSettings(), (84, 84, 1), 4, 4, 0),
        (AtariSettings(tasks=("pong", "breakout"), action_set="full"), (84, 84, 1), 4, 18, 0),
        (AtariSettings(grayscale=False, frame_height=72, frame_width=96, frame_stack=2), (72, 96, 3), 2, 4, 0),
        (CatchSettings(), (10, 5, 1), 1, 3, 0),
        (CatchSettings(tasks=("catch", "catch_instructed")), (10, 5, 1), 1, 3, 16),
        (DMLabSettings(tasks=LEVELS), (72, 96, 3), 1, 9, 16),
        (DMLabSettings(tasks=LEVELS, action_set="popart"), (72, 96, 3), 1, 15, 16),
        (ViZDoomSettings(tasks=("basic", "health_gathering"), frame_height=60, frame_width=80, frame_stack=2), (60, 80, 3), 2, 9, 0),
    ],
)
def test_the_specs_of_suites_have_the_expected_spaces(
    settings: Any, shape: tuple[int, int, int], stack: int, num_actions: int, num_words: int
) -> None:
    spec = environment_spec(settings)
    assert spec == EnvSpec(settings.tasks, shape, stack, discrete(num_actions), settings.action_repeat, num_words)
    assert spec.observation_channels == shape[2] * stack


@pytest.mark.parametrize(
    ("suite", "task", "hint"),
    [
        (AtariSettings, "MsPacman", "ms_pacman"),
        (AtariSettings, "ALE/SpaceInvaders-v5", "space_invaders"),
        (AtariSettings, "KungFuMasterNoFrameskip-v4", "kung_fu_master"),
        (AtariSettings, "catch", "known: alien"),
        (CatchSettings, "breakout", "known: catch, catch_instructed, catch_deceptive"),
        (ViZDoomSettings, "helth_gathering", "did you mean health_gathering"),
        (DMLabSettings, "explore_goal_location_small", "explore_goal_locations_small"),
        (DMLabSettings, "dmlab-30", "dmlab30"),
    ],
)
def test_unknown_tasks_are_refused_with_a_suggestion(suite: type[SuiteSettings], task: str, hint: str) -> None:
    settings = suite.model_validate({"tasks": (task,)})
    with pytest.raises(UnknownTaskError) as raised:
        environment_spec(settings)
    assert repr(task) in str(raised.value)
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "package", "line"),
    [
        (AtariSettings(), "ale_py", r"env\.suite atari needs ale_py: pip install 'herd-rl\[actor\]'"),
        (ViZDoomSettings(), "vizdoom", r"env\.suite vizdoom needs vizdoom: pip install 'herd-rl\[vizdoom\]'"),
        (DMLabSettings(tasks=("lt_chasm",)), "deepmind_lab", r"needs deepmind_lab: no wheel of it exists; .*docs/suites\.md"),
    ],
)
def test_a_missing_package_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, settings: SuiteSettings, package: str, line: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("herd.components.suites.find_spec", lambda name: None if name == package else object())
    with pytest.raises(UnknownTaskError, match=line) as raised:
        make_environments(settings, num_environments=1, first_slot=0, seed=1, num_threads=1)
    assert "\n" not in str(raised.value)


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


def test_words_are_hashed_in_order_padded_and_cut() -> None:
    # Checkpoints depend on these numbers.
    assert hash_instruction("  catch the\tball ") == [963, 274, 783, *[0] * 13]
    assert hash_instruction("avoid the ball")[:3] == [841, 274, 783]
    assert hash_instruction("") == [0] * MAX_WORDS
    ids = [hash_instruction(f"word{number}")[0] for number in range(5_000)]
    assert hash_instruction(" ".join(f"word{number}" for number in range(40))) == ids[:MAX_WORDS]
    assert 1 <= min(ids) <= max(ids) < NUM_BUCKETS
    assert len(set(ids)) > 950
