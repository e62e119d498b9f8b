"""The single-player scenarios of ViZDoom's wheel, and the actions composed of their buttons."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCENARIOS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "basic": ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK"),
        "deadly_corridor": ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK", "MOVE_FORWARD", "MOVE_BACKWARD", "TURN_LEFT", "TURN_RIGHT"),
        "defend_the_center": ("TURN_LEFT", "TURN_RIGHT", "ATTACK"),
        "defend_the_line": ("TURN_LEFT", "TURN_RIGHT", "ATTACK"),
        "health_gathering": ("TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD"),
        "health_gathering_supreme": ("TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD"),
        "my_way_home": ("TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD", "MOVE_LEFT", "MOVE_RIGHT"),
        "predict_position": ("TURN_LEFT", "TURN_RIGHT", "ATTACK"),
        "rocket_basic": ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK"),
        "simpler_basic": ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK"),
        "take_cover": ("MOVE_LEFT", "MOVE_RIGHT"),
    }
)
"""Buttons of each scenario, in the order of its .cfg, so that a learner knows them without ViZDoom."""
_ACTIONS = (
    (),
    ("MOVE_FORWARD",),
    ("MOVE_BACKWARD",),
    ("MOVE_LEFT",),
    ("MOVE_RIGHT",),
    ("TURN_LEFT",),
    ("TURN_RIGHT",),
    ("MOVE_FORWARD", "TURN_LEFT"),
    ("MOVE_FORWARD", "TURN_RIGHT"),
    ("ATTACK",),
)
"""Actions like those of DeepMind Lab: directions, forward with a turn, fire; and nothing, for waiting."""


def actions_of(tasks: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return the actions of an agent that plays ``tasks``, as buttons held down: those whose buttons exist in at least one of them.

    If a scenario lacks a button of an action, the rest of the action is played.
    """
    buttons = {button for task in tasks for button in SCENARIOS[task]}
    return tuple(action for action in _ACTIONS if buttons.issuperset(action))
