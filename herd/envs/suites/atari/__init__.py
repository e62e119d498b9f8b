"""Atari 2600: the games of Atari-57 and the rest of ale-py's, with the switches of IMPALA's Table G.1."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from herd.config.contract import EnvSpec
from herd.envs.scores import reference_scores
from herd.envs.suite import Suite, require_known
from herd.envs.suites.atari.settings import AtariSettings

if TYPE_CHECKING:
    from herd.envs.api import BatchedEnvironment

NUM_FULL_ACTIONS = 18
"""Of the console: nine joystick positions, with and without the button."""


def _spec(settings: AtariSettings) -> EnvSpec:
    table = reference_scores("atari")
    require_known(settings.tasks, table, "Atari game", _plain_name)
    minimal = table[settings.tasks[0]].minimal_actions
    assert minimal is not None
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, 1 if settings.grayscale else 3),
        frame_stack=settings.frame_stack,
        num_actions=minimal if settings.action_set == "minimal" else NUM_FULL_ACTIONS,
        action_repeat=settings.action_repeat,
        instruction_length=0,
    )


def _make(
    settings: AtariSettings, spec: EnvSpec, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    from herd.envs.suites.atari.environments import AtariEnvironments  # noqa: PLC0415  only processes that play need the emulator

    return AtariEnvironments(settings, spec, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_threads)


def _plain_name(task: str) -> str:
    """Gymnasium's ids as plain names: ``ALE/MsPacman-v5`` and ``MsPacmanNoFrameskip-v4`` become ``ms_pacman``."""
    name = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", task.removeprefix("ALE/"))
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()


SUITE = Suite(settings=AtariSettings, spec=_spec, make=_make, packages=("ale_py", "gymnasium"))
