"""Gymnasium: any environment with its interface, and pictures or vectors for observations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from herd.components.suites import Suite
from herd.components.suites.api import UnknownTaskError
from herd.components.suites.gymnasium.settings import GymnasiumSettings
from herd.components.suites.reading import FRAME, VECTOR, WORDS
from herd.contract.spaces import NO_FRAMES, EnvSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.components.suites.api import BatchedEnvironment, Slots
    from herd.components.suites.reading import Reader
    from herd.contract.spaces import ActionSpace


def _spec(settings: GymnasiumSettings) -> EnvSpec:
    return _spec_of(settings.model_dump_json())


@lru_cache(maxsize=8)
def _spec_of(settings_json: str) -> EnvSpec:
    """Return the spaces. Only environments know them, so each task's is created once in every process that calls this, and closed."""
    settings = GymnasiumSettings.model_validate_json(settings_json)
    try:
        from herd.components.suites.gymnasium.game import make_game, mask_is_obeyed  # noqa: PLC0415  settings alone do without gymnasium
    except ModuleNotFoundError as error:
        raise UnknownTaskError(f"env.suite gymnasium needs {error.name}: {_INSTALL}") from error

    found, has_bounds = [], True
    for task in dict.fromkeys(settings.tasks):
        game = make_game(settings, task)
        try:
            actions = game.actions.space.masked() if mask_is_obeyed(game, settings) else game.actions.space
        finally:
            game.close()
        found.append((game.shapes, actions))
        has_bounds &= game.has_bounds
        if found[-1] != found[0]:
            raise UnknownTaskError(
                f"env.tasks: {settings.tasks[0]} and {task} differ in their spaces: {_told(*found[0])}; {_told(*found[-1])}"
            )
    shapes, actions = found[0]
    of_frames = ("frame_stack", "frame_height", "frame_width", "grayscale")
    if FRAME not in shapes and (
        idle := [name for name in of_frames if getattr(settings, name) != GymnasiumSettings.model_fields[name].default]
    ):
        raise UnknownTaskError(f"env.{idle[0]} applies to pictures, but the observations of {settings.tasks[0]} have none")
    height, width, channels = shapes.get(FRAME, NO_FRAMES)
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(height, width, channels),
        frame_stack=settings.frame_stack,
        actions=actions,
        action_repeat=settings.action_repeat,
        instruction_length=shapes[WORDS][0] if WORDS in shapes else 0,
        vector_size=shapes[VECTOR][0] if VECTOR in shapes else 0,
        vector_is_bounded=has_bounds,
    )


def _told(shapes: Mapping[str, tuple[int, ...]], actions: ActionSpace) -> str:
    parts = ", ".join(f"{part} {'x'.join(map(str, shape))}" for part, shape in shapes.items())
    return f"{parts}, actions {actions}"


def make(settings: GymnasiumSettings, spec: EnvSpec, slots: Slots) -> BatchedEnvironment:
    """See `Suite.code`."""
    from herd.components.suites.batch import SoloEnvironments  # noqa: PLC0415  only processes that play need it

    return SoloEnvironments(
        settings,
        spec,
        slots,
        f"{__name__}.game:{'make_masked' if spec.actions.mask_size else 'make_unmasked'}",
        processes=settings.vectorization == "async",
        step_seconds=settings.step_timeout_seconds,
    )


def _reader(settings: GymnasiumSettings, task: str) -> Reader:
    from herd.components.suites.gymnasium.game import GameReader  # noqa: PLC0415  as in make

    return GameReader(settings, task)


def _frames_per_second(settings: GymnasiumSettings, task: str) -> float:
    from herd.components.suites.gymnasium.game import render_fps  # noqa: PLC0415  as in make

    return render_fps(settings, task)


_INSTALL = "pip install 'herd-rl[gymnasium]'"
PART = Suite(
    kind="gymnasium",
    settings=GymnasiumSettings,
    code=f"{__name__}:make",
    spec=_spec,
    packages=("gymnasium",),
    install=_INSTALL,
    check=f"{__name__}.check:check",
    frames_per_second=_frames_per_second,
    on_screen=GymnasiumSettings.drawn,
    picture=lambda environments: environments.solo(0).picture(),
    reader=_reader,
)
