"""Atari 2600: the games of Atari-57 and the rest of ale-py's, with the switches of IMPALA's Table G.1, whose values are the defaults."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from herd.components.settings import Fraction, NonNegativeInt, Pixels, PositiveInt
from herd.components.suites import Suite, SuiteSettings, require_known
from herd.components.suites.scores import ReferenceScores, read_reference_scores
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_GAMES = "atari57"
NUM_FULL_ACTIONS = 18
"""Number of actions of the console: nine joystick positions, with and without the button."""
SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160


@cache
def atari_scores() -> Mapping[str, ReferenceScores]:
    """The 57 games."""
    return read_reference_scores(resources.files(__package__) / "scores.csv")


class AtariSettings(SuiteSettings):
    """Atari 2600 games (Table G.1 of IMPALA for the defaults)."""

    suite: Literal["atari"] = "atari"
    """Atari 2600 games over ale-py."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("breakout",)
    """Lower-case ALE names such as ``ms_pacman``. With several names, one agent learns all of them (docs/many-tasks.md). ``atari57`` stands
    for all 57 games."""
    action_set: Literal["minimal", "full"] = "minimal"
    """``minimal``: the game's own actions. ``full``: all 18, which several games require."""
    action_repeat: PositiveInt = 4
    """Emulator frames per agent step."""
    max_pool: bool = True
    """Pixel-wise maximum over the last two emulator frames of a step."""
    frame_stack: PositiveInt = 4
    """Number of most recent frames in one observation (S)."""
    frame_height: Pixels = 84
    """Size in pixels."""
    frame_width: Pixels = 84
    """Size in pixels."""
    grayscale: bool = True
    """Observe one luminance plane instead of RGB."""
    noop_max: NonNegativeInt = 30
    """A game starts with a number of no-op frames, drawn uniformly from 1 to this number. 0: none."""
    sticky_action_probability: Fraction = 0.0
    """Probability that the emulator repeats the previous action at each frame (Machado et al. 2018 use 0.25)."""
    max_episode_frames: PositiveInt = 108_000
    """A game is truncated after this many emulator frames (30 minutes at 60 Hz)."""
    max_frames_without_reward: PositiveInt | None = None
    """A game is truncated after this many emulator frames without a reward (SABER: 18,000, five minutes). Null: never."""
    life_loss_ends_episode: bool = True
    """For learning, a lost life counts as ``terminated``. The game and its return continue."""
    fire_on_reset: bool = False
    """Press fire after a reset, if the game has that action."""

    reward_shaping: ClassVar[str] = "clip"

    makes_spaces: ClassVar[tuple[str, ...]] = ("action_set", "frame_stack", "frame_height", "frame_width", "grayscale")

    @field_validator("tasks", mode="before")
    @classmethod
    def _all_games(cls, tasks: Any) -> Any:
        if not isinstance(tasks, list | tuple) or ALL_GAMES not in tasks:
            return tasks
        return tuple(game for task in tasks for game in (atari_scores() if task == ALL_GAMES else [task]))

    @model_validator(mode="after")
    def _one_policy_head_serves_all(self) -> Self:
        if len(self.tasks) > 1 and self.action_set == "minimal":
            raise ValueError(
                "action_set must be full if tasks has several games, because one policy head plays all of them: set env.action_set full"
            )
        return self


def _spec(settings: AtariSettings) -> EnvSpec:
    table = atari_scores()
    require_known(settings.tasks, table, "Atari game", _plain_name)
    minimal = table[settings.tasks[0]].minimal_actions
    assert minimal is not None
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, 1 if settings.grayscale else 3),
        frame_stack=settings.frame_stack,
        actions=discrete(minimal if settings.action_set == "minimal" else NUM_FULL_ACTIONS),
        action_repeat=settings.action_repeat,
        instruction_length=0,
    )


def _plain_name(task: str) -> str:
    """Gymnasium's ids as plain names: ``ALE/MsPacman-v5`` and ``MsPacmanNoFrameskip-v4`` become ``ms_pacman``."""
    name = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", task.removeprefix("ALE/"))
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()


def _protocol(env: Mapping[str, Any]) -> Sequence[str]:
    starts = f"1..{env['noop_max']} no-op frames" if env["noop_max"] else "no no-ops"
    return starts, f"sticky {env['sticky_action_probability']:g}", f"cap {env['max_episode_frames']:,} frames"


def _action_names(settings: AtariSettings) -> Sequence[str] | None:
    if settings.action_set == "full" or find_spec("ale_py") is None:
        return None
    from herd.components.suites.atari.start import minimal_actions  # noqa: PLC0415  loads the emulator

    return minimal_actions(settings.tasks[0])


def _on_screen(settings: AtariSettings) -> AtariSettings:
    # The emulator draws all random numbers from the seed, so it plays the same game again.
    screen = {"grayscale": False, "frame_height": SCREEN_HEIGHT, "frame_width": SCREEN_WIDTH, "frame_stack": 1}
    return settings.model_copy(update=screen)


PART = Suite(
    kind="atari",
    settings=AtariSettings,
    code=f"{__name__}.environments:AtariEnvironments",
    spec=_spec,
    packages=("ale_py", "gymnasium"),
    install="pip install 'herd-rl[actor]'",
    presets=Path(__file__).parent / "presets",
    reference_scores=atari_scores,
    protocol=_protocol,
    on_screen=_on_screen,
    action_names=_action_names,
)
