"""Measures how a game of Atari begins: its actions, and the number of frames before the first no-op.

Some games need menu choices before they begin (Name This Game: 134 frames), and the emulator counts those frames as part of the game. Their
number is fixed, except in Double Dunk with sticky actions, where it is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONSOLE_ACTIONS = [Action(number) for number in range(18)]
"""Nine joystick positions, with and without the button: the full action set."""


@dataclass(frozen=True, slots=True)
class GameStart:
    """The start of one game with one probability of sticky actions."""

    num_actions: int
    """Number of actions of the chosen action set."""
    emulator_actions: NDArray[np.int32] | None
    """[num_actions]: the emulator's number of each action; None if it is the same."""
    fire_frames: int
    """Frames for which fire is pressed after a reset: 1, or 0 if that is disabled or the game lacks the action."""
    frames_before_noops: int | None
    """Emulator frames on the counter when the no-ops begin, including fire; None if the number is random."""


@cache
def game_start(game: str, *, full_action_set: bool, fire_on_reset: bool, sticky_action_probability: float) -> GameStart:
    """Start ``game`` once, or twice with sticky actions, which takes about 60 ms. The result is cached."""
    # Otherwise the emulator prints a banner for every ROM.
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator, frames = _reset(game, 0.0)
    actions = emulator.getLegalActionSet() if full_action_set else emulator.getMinimalActionSet()
    emulator_actions = None
    if full_action_set and list(actions) != CONSOLE_ACTIONS:
        emulator_actions = _without_button(actions)
        actions = CONSOLE_ACTIONS
    fire_frames = int(fire_on_reset and Action.FIRE in actions)
    # Always repeating is the extreme case, and deterministic: if it does not lengthen a start, no other probability does.
    is_fixed = sticky_action_probability == 0.0 or _reset(game, 1.0)[1] == frames
    return GameStart(len(actions), emulator_actions, fire_frames, frames + fire_frames if is_fixed else None)


def minimal_actions(game: str) -> list[str]:
    """Return the names of the game's own actions, by number."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator, _ = _reset(game, 0.0)
    return [action.name for action in emulator.getMinimalActionSet()]


def _without_button(actions: Sequence[Action]) -> NDArray[np.int32]:
    """Return the actions, of all 18, of a game without a button (Skiing): the joystick positions."""
    own = list(actions)
    names = [action.name if action in own else action.name.removesuffix("FIRE") or "NOOP" for action in CONSOLE_ACTIONS]
    return np.array([own.index(Action.__members__[name]) for name in names], np.int32)


def _reset(game: str, sticky_action_probability: float) -> tuple[ALEInterface, int]:
    emulator = ALEInterface()
    emulator.setFloat("repeat_action_probability", sticky_action_probability)
    emulator.setInt("random_seed", 0)
    rom = roms.get_rom_path(game)
    if rom is None:
        raise RuntimeError(f"this ale-py has no ROM for {game}")
    emulator.loadROM(rom)
    emulator.reset_game()
    return emulator, emulator.getEpisodeFrameNumber()
