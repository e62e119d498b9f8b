"""The levels of DeepMind Lab, and the papers' actions on its seven axes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from herd.components.suites.scores import ReferenceScores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ACTIONS: Mapping[str, tuple[tuple[int, ...], ...]] = MappingProxyType(
    {
        # IMPALA (arXiv:1802.01561), Table D.2.
        "impala": (
            (0, 0, 0, 1, 0, 0, 0),  # forward
            (0, 0, 0, -1, 0, 0, 0),  # backward
            (0, 0, -1, 0, 0, 0, 0),  # strafe left
            (0, 0, 1, 0, 0, 0, 0),  # strafe right
            (-20, 0, 0, 0, 0, 0, 0),  # look left
            (20, 0, 0, 0, 0, 0, 0),  # look right
            (-20, 0, 0, 1, 0, 0, 0),  # forward and look left
            (20, 0, 0, 1, 0, 0, 0),  # forward and look right
            (0, 0, 0, 0, 1, 0, 0),  # fire
        ),
        # PopArt (arXiv:1809.04474), Table 2 of its appendix.
        "popart": (
            (0, 0, 0, 1, 0, 0, 0),  # forward
            (0, 0, 0, -1, 0, 0, 0),  # backward
            (0, 0, -1, 0, 0, 0, 0),  # strafe left
            (0, 0, 1, 0, 0, 0, 0),  # strafe right
            (-10, 0, 0, 0, 0, 0, 0),  # look a little to the left
            (10, 0, 0, 0, 0, 0, 0),  # look a little to the right
            (-60, 0, 0, 0, 0, 0, 0),  # look far to the left
            (60, 0, 0, 0, 0, 0, 0),  # look far to the right
            (0, 10, 0, 0, 0, 0, 0),  # look down
            (0, -10, 0, 0, 0, 0, 0),  # look up
            (-10, 0, 0, 1, 0, 0, 0),  # forward and look a little to the left
            (10, 0, 0, 1, 0, 0, 0),  # forward and look a little to the right
            (-60, 0, 0, 1, 0, 0, 0),  # forward and look far to the left
            (60, 0, 0, 1, 0, 0, 0),  # forward and look far to the right
            (0, 0, 0, 0, 1, 0, 0),  # fire
        ),
    }
)
"""Look right and down (pixels a frame), strafe right, forward, fire, jump, crouch."""
ALL_LEVELS = "dmlab30"
OTHERS = (
    "lt_chasm",
    "lt_hallway_slope",
    "lt_horseshoe_color",
    "lt_space_bounce_hard",
    "nav_maze_random_goal_01",
    "nav_maze_random_goal_02",
    "nav_maze_random_goal_03",
    "nav_maze_static_01",
    "nav_maze_static_02",
    "nav_maze_static_03",
    "seekavoid_arena_01",
    "stairway_to_melon",
)
"""Levels in the first folder of the Lab."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of DMLab-30."""

    is_held_out: bool
    """A variant for testing, which must not be trained on."""
    tested_as: str
    """The level that is played in a test: itself, unless there is another variant."""
    needs_dataset: bool
    """Whether it shows photographs that the Lab does not include."""
    reference: ReferenceScores


@cache
def dmlab30() -> Mapping[str, Level]:
    """The 32 files of DMLab-30's 30 levels by name; two levels have a variant for training and one for testing."""
    levels = {}
    with (resources.files(__package__) / "scores.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            for name in dict.fromkeys((row["train_level"], row["test_level"])):
                levels[name] = Level(
                    is_held_out=row["has_separate_test"] == "1" and name == row["test_level"],
                    tested_as=row["test_level"],
                    needs_dataset=row["needs_brady_dataset"] == "1",
                    reference=ReferenceScores(name, float(row["random"]), float(row["human"]), world_record=None, minimal_actions=None),
                )
    return MappingProxyType(levels)


def reference_scores() -> Mapping[str, ReferenceScores]:
    """Reference scores by level: a variant for training has those of the variant for testing."""
    return {name: level.reference for name, level in dmlab30().items()}


def level_path(task: str) -> str:
    """Return the Lab's name of a level."""
    return f"contributed/dmlab30/{task}" if task in dmlab30() else task


def spelled_out(tasks: Iterable[str], *, hold_out: bool) -> tuple[str, ...]:
    """Return ``tasks`` with ``dmlab30`` replaced by its 30 levels in the order of the table; with ``hold_out`` as they are tested."""
    training = [name for name, level in dmlab30().items() if not level.is_held_out]
    levels = [level for task in tasks for level in (training if task == ALL_LEVELS else (task,))]
    return tuple(dmlab30()[level].tested_as if hold_out and level in dmlab30() else level for level in levels)
