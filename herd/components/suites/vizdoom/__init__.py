"""ViZDoom: the single-player scenarios of its wheel, in first person. The wheel includes the engine."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from herd.components.settings import Pixels, PositiveInt
from herd.components.suites import PROCESS_STEP_SECONDS, Suite, SuiteSettings, require_known
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from herd.components.suites.api import BatchedEnvironment, Slots

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


class ViZDoomSettings(SuiteSettings):
    """ViZDoom: Doom seen in first person, each environment in a process of its own."""

    suite: Literal["vizdoom"] = "vizdoom"
    """The single-player scenarios of ViZDoom's wheel."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("basic",)
    """Scenarios such as ``health_gathering``. With several names, one agent learns all of them (docs/many-tasks.md), with the actions of
    all their buttons."""
    action_repeat: PositiveInt = 4
    """Game tics (35 per second) per agent step."""
    frame_stack: PositiveInt = 1
    """Number of most recent frames in one observation (S)."""
    frame_height: Pixels = 72
    """Size in pixels."""
    frame_width: Pixels = 96
    """Size in pixels."""

    makes_spaces: ClassVar[tuple[str, ...]] = ("frame_stack", "frame_height", "frame_width")

    def longest_step_seconds(self) -> float:
        """See `SuiteSettings.longest_step_seconds`."""
        return PROCESS_STEP_SECONDS


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


def make(settings: ViZDoomSettings, spec: EnvSpec, slots: Slots) -> BatchedEnvironment:
    """See `Suite.code`."""
    from herd.components.suites.batch import SoloEnvironments  # noqa: PLC0415  only processes that play need it

    return SoloEnvironments(settings, spec, slots, f"{__name__}.game:Game")


def _action_names(settings: ViZDoomSettings) -> Sequence[str]:
    return ["+".join(buttons) or "NOTHING" for buttons in actions_of(settings.tasks)]


def _on_screen(settings: ViZDoomSettings) -> ViZDoomSettings:
    return settings.model_copy(update={"frame_stack": 1, "frame_height": 240, "frame_width": 320})


PART = Suite(
    kind="vizdoom",
    settings=ViZDoomSettings,
    code=f"{__name__}:make",
    spec=_spec,
    packages=("vizdoom", "cv2"),
    install="pip install 'herd-rl[vizdoom]'",
    frames_per_second=lambda *_: 35.0,
    on_screen=_on_screen,
    action_names=_action_names,
)
