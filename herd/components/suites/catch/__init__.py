"""Catch: a ball falls down a board, and a paddle must be under it. It needs no emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.components.suites import Suite, require_known
from herd.components.suites.catch.environments import CATCH_TASKS, INSTRUCTED, NUM_CATCH_ACTIONS, CatchEnvironments, scaled_tasks
from herd.components.suites.catch.settings import CatchSettings
from herd.components.suites.reading import MAX_WORDS
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from herd.components.suites.api import BatchedEnvironment


def _spec(settings: CatchSettings) -> EnvSpec:
    require_known(settings.tasks, CATCH_TASKS, "catch task")
    return EnvSpec(
        task_names=tuple(task.name for task in scaled_tasks(settings)),
        frame_shape=(settings.frame_height, settings.frame_width, 1),
        frame_stack=settings.frame_stack,
        actions=discrete(NUM_CATCH_ACTIONS),
        action_repeat=settings.action_repeat,
        instruction_length=MAX_WORDS if INSTRUCTED in settings.tasks else 0,
    )


def _make(
    settings: CatchSettings,
    spec: EnvSpec,
    *,
    num_environments: int,
    first_slot: int,
    seed: int,
    num_threads: int,  # noqa: ARG001  the boards need none
) -> BatchedEnvironment:
    return CatchEnvironments(settings, spec, num_environments=num_environments, first_slot=first_slot, seed=seed)


PART = Suite(kind="catch", settings=CatchSettings, spec=_spec, make=_make, frames_per_second=lambda *_: 5.0)
