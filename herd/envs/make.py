"""From settings to spaces (without starting anything) and to running environments."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from herd.config.contract import EnvSpec
from herd.envs.api import BatchedEnvironment, UnknownTaskError
from herd.envs.catch import CATCH_TASKS, INSTRUCTED, NUM_CATCH_ACTIONS, CatchEnvironments
from herd.envs.instructions import MAX_WORDS
from herd.envs.scores import reference_scores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from herd.config.settings import EnvSettings

NUM_FULL_ACTIONS = 18
"""Of the console: nine joystick positions, with and without the button."""


def environment_spec(settings: EnvSettings) -> EnvSpec:
    """Spaces of what ``settings`` describe. Needs no emulator; UnknownTaskError if a task does not exist."""
    if settings.suite == "catch":
        _require_known(settings.tasks, CATCH_TASKS, "catch task")
        if settings.frame_height < 2:
            raise ValueError("env.frame_height must be at least 2 for the catch suite: the ball falls from the first row to the last")
        channels, num_actions = 1, NUM_CATCH_ACTIONS
    else:
        table = reference_scores("atari")
        _require_known(settings.tasks, table, "Atari game")
        minimal = table[settings.tasks[0]].minimal_actions
        assert minimal is not None
        channels = 1 if settings.grayscale else 3
        num_actions = minimal if settings.action_set == "minimal" else NUM_FULL_ACTIONS
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, channels),
        frame_stack=settings.frame_stack,
        num_actions=num_actions,
        action_repeat=settings.action_repeat,
        instruction_length=MAX_WORDS if settings.suite == "catch" and INSTRUCTED in settings.tasks else 0,
    )


def make_environments(settings: EnvSettings, *, num_environments: int, first_slot: int, seed: int, num_threads: int) -> BatchedEnvironment:
    """``num_environments`` environments for the global slots ``first_slot``..: slot g plays task g modulo the number of tasks.

    What a slot plays and draws depends on ``seed`` and the slot alone, not on how slots are spread over processes.
    ``num_threads`` bounds the threads that step emulators at one time.
    """
    if num_environments < 1 or num_threads < 1 or first_slot < 0 or seed < 0:
        raise ValueError("num_environments and num_threads must be at least 1, first_slot and seed at least 0")
    spec = environment_spec(settings)
    if settings.suite == "catch":
        return CatchEnvironments(settings, spec, num_environments=num_environments, first_slot=first_slot, seed=seed)
    # Only processes that play need the emulator installed.
    from herd.envs.atari import AtariEnvironments  # noqa: PLC0415

    return AtariEnvironments(settings, spec, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_threads)


def _require_known(tasks: Iterable[str], known: Iterable[str], what: str) -> None:
    names = list(known)
    for task in tasks:
        if task not in names:
            close = difflib.get_close_matches(_plain_name(task), names, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
            raise UnknownTaskError(f"env.tasks: unknown {what} {task!r}; {hint}")


def _plain_name(task: str) -> str:
    """Gymnasium's ids as plain names: ``ALE/MsPacman-v5`` and ``MsPacmanNoFrameskip-v4`` become ``ms_pacman``."""
    name = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", task.removeprefix("ALE/"))
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()
