"""The scenarios of ViZDoom's wheel for one player, and the actions that are made of their buttons."""

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
"""Buttons of each, in the order of its .cfg. They stand here so that a learner knows them without ViZDoom."""
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
"""As those of DeepMind Lab: directions, forward with a turn, fire; and nothing, for what waits."""


def actions_of(tasks: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The actions of an agent that plays ``tasks``, as buttons held down: those whose buttons one of them has or more.

    A scenario without a button of an action plays it without that button.
    """
    buttons = {button for task in tasks for button in SCENARIOS[task]}
    return tuple(action for action in _ACTIONS if buttons.issuperset(action))
