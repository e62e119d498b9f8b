"""Catch: a ball falls down a board, and a paddle must be under it. It needs no emulator."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator

from herd.components.settings import Pixels, PositiveFloat, PositiveInt
from herd.components.suites import Suite, SuiteSettings, require_known
from herd.components.suites.reading import MAX_WORDS
from herd.contract.spaces import EnvSpec, discrete

INSTRUCTED = "catch_instructed"
DECEPTIVE = "catch_deceptive"
CATCH_TASKS = ("catch", INSTRUCTED, DECEPTIVE)
NUM_CATCH_ACTIONS = 3


class CatchSettings(SuiteSettings):
    """Catch: a game for tests, learned in seconds."""

    suite: Literal["catch"] = "catch"
    """Catch: a ball falls down a small board, and a paddle must be under it."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("catch",)
    """``catch``, ``catch_instructed`` or ``catch_deceptive``. With several names, one agent learns all of them."""
    reward_scales: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (1.0,)
    """Factors that rewards are multiplied by. Each task is played with each factor, so two factors make two tasks that look alike but
    differ in their returns. A task with a factor other than 1 is named after it, such as ``catch_x1000``."""
    action_repeat: PositiveInt = 1
    """Rows that the ball falls per agent step."""
    frame_stack: PositiveInt = 1
    """Number of most recent boards in one observation (S)."""
    frame_height: Annotated[int, Field(ge=2, le=4096)] = 10
    """Rows of the board: the ball falls from the first to the last."""
    frame_width: Pixels = 5
    """Columns of the board."""
    max_episode_frames: PositiveInt = 108_000
    """A game is truncated after this many frames."""
    step_seconds: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Seconds that each agent step waits, as with a slower game, so that a run leaves most of the processor free."""

    makes_spaces: ClassVar[tuple[str, ...]] = ("reward_scales", "frame_stack", "frame_height", "frame_width")
    of_the_machine: ClassVar[tuple[str, ...]] = ("step_seconds",)

    @field_validator("reward_scales")
    @classmethod
    def _each_scale_makes_a_task(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if len({f"{scale:g}" for scale in scales}) < len(scales):
            raise ValueError("should be different factors")
        return scales


class ScaledTask(NamedTuple):
    """One task of a run."""

    name: str
    game: str
    """One of ``CATCH_TASKS``."""
    reward_scale: float


def scaled_tasks(settings: CatchSettings) -> list[ScaledTask]:
    """Return each game with each factor of its rewards, by task id."""
    return [
        ScaledTask(game if scale == 1.0 else f"{game}_x{scale:g}", game, scale)
        for game in settings.tasks
        for scale in settings.reward_scales
    ]


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


PART = Suite(
    kind="catch",
    settings=CatchSettings,
    code=f"{__name__}.environments:CatchEnvironments",
    spec=_spec,
    frames_per_second=lambda *_: 5.0,
)
