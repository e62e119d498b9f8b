"""ViZDoom: scenarios of Doom, in first person. The wheel includes the engine and the scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.components.suites import Suite, require_known
from herd.components.suites.vizdoom.scenarios import SCENARIOS, actions_of
from herd.components.suites.vizdoom.settings import ViZDoomSettings
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.components.suites.api import BatchedEnvironment


def _spec(settings: ViZDoomSettings) -> EnvSpec:
    require_known(settings.tasks, SCENARIOS, "ViZDoom scenario")
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, 3),
        frame_stack=settings.frame_stack,
        actions=discrete(len(actions_of(settings.tasks))),
        action_repeat=settings.action_repeat,
        instruction_length=0,
    )


def _make(
    settings: ViZDoomSettings, spec: EnvSpec, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    from herd.components.suites.batch import SoloEnvironments  # noqa: PLC0415  only processes that play need it

    maker = f"{__name__}.game:make_game"
    return SoloEnvironments(
        settings, spec, maker, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_threads
    )


def _action_names(settings: ViZDoomSettings) -> Sequence[str]:
    return ["+".join(buttons) or "NOTHING" for buttons in actions_of(settings.tasks)]


def _on_screen(settings: ViZDoomSettings) -> ViZDoomSettings:
    return settings.model_copy(update={"frame_stack": 1, "frame_height": 240, "frame_width": 320})


PART = Suite(
    kind="vizdoom",
    settings=ViZDoomSettings,
    spec=_spec,
    make=_make,
    packages=("vizdoom", "cv2"),
    install="pip install 'herd-rl[vizdoom]'",
    frames_per_second=lambda *_: 35.0,
    on_screen=_on_screen,
    action_names=_action_names,
)
