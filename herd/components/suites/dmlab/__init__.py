"""DeepMind Lab: DMLab-30 and its other levels, in first person, with instructions. The defaults are those of IMPALA's Table D.3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from herd.components.settings import TRUE_WORDS, Pixels, PositiveInt
from herd.components.suites import PROCESS_STEP_SECONDS, Suite, SuiteSettings, require_known
from herd.components.suites.dmlab.levels import ACTIONS, ALL_LEVELS, OTHERS, dmlab30, reference_scores, spelled_out
from herd.components.suites.reading import MAX_WORDS
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.components.suites.api import BatchedEnvironment, Slots


class DMLabSettings(SuiteSettings):
    """DeepMind Lab: levels seen in first person, each environment in a process of its own."""

    suite: Literal["dmlab"] = "dmlab"
    """DeepMind Lab. It has no wheel; docs/suites.md explains how to build it."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = (ALL_LEVELS,)
    """Names of levels. With several names, one agent learns all of them (docs/many-tasks.md). ``dmlab30`` stands for the 30 levels of
    DMLab-30. A name with a slash is the path of a Lab level, such as ``contributed/psychlab/harlow``."""
    action_set: Literal["impala", "popart"] = "impala"
    """``impala``: the 9 actions of IMPALA's Table D.2. ``popart``: the 15 actions of PopArt's Table 2."""
    action_repeat: PositiveInt = 4
    """Frames of the Lab (60 per second) per agent step."""
    frame_height: Pixels = 72
    """Size in pixels."""
    frame_width: Pixels = 96
    """Size in pixels."""
    hold_out: bool = False
    """Play held-out levels, for an evaluation: the ``_test`` variants of the two levels that have one, and other mazes and objects in all
    levels (the Lab's ``mixerSeed``)."""
    dataset_path: str | None = None
    """Folder of the photographs (Brady et al. 2008) that two psychlab levels show. ``dummy`` shows plain pictures instead; their scores are
    not comparable with published ones."""
    level_cache: Path | None = None
    """Folder on a local disk for compiled maps, shared by all processes of a machine. Compiling a map takes seconds. The folder is never
    emptied."""
    level_seeds: PositiveInt | None = None
    """Number of different maps of each level. If you set it, maps repeat and come from ``level_cache``. Null: unlimited."""
    prepare_games: bool = True
    """A second process for each environment prepares the next map while a game is played, so that no game has to wait for its map. It takes
    another 200 MB of memory per environment."""
    renderer: Literal["software", "hardware"] = "software"
    """``hardware`` needs a GPU with EGL."""

    reward_shaping: ClassVar[str] = "clip"

    makes_spaces: ClassVar[tuple[str, ...]] = ("action_set", "frame_height", "frame_width")

    of_the_machine: ClassVar[tuple[str, ...]] = ("level_cache", "prepare_games")

    def game_settings(self) -> dict[str, Any]:
        """See `SuiteSettings.game_settings`: the photographs are the same in any folder."""
        return super().game_settings() | {"dataset_path": "dummy" if self.dataset_path == "dummy" else None}

    def longest_step_seconds(self) -> float:
        """See `SuiteSettings.longest_step_seconds`."""
        return PROCESS_STEP_SECONDS

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        tasks, hold_out = values.get("tasks", (ALL_LEVELS,)), str(values.get("hold_out", False)).lower()
        if isinstance(tasks, list | tuple) and all(isinstance(task, str) for task in tasks):
            return values | {"tasks": spelled_out(tasks, hold_out=hold_out in TRUE_WORDS)}
        return values  # the field refuses these values

    @model_validator(mode="after")
    def _test_levels_are_held_out(self) -> Self:
        held_out = [task for task in self.tasks if task in dmlab30() and dmlab30()[task].is_held_out]
        if held_out and not self.hold_out:
            raise ValueError(f"hold_out must be true to play {held_out[0]}, which is a test level")
        return self


def _spec(settings: DMLabSettings) -> EnvSpec:
    named = [task for task in settings.tasks if "/" not in task]
    require_known(named, [ALL_LEVELS, *dmlab30(), *OTHERS], "DeepMind Lab level")
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, 3),
        frame_stack=1,
        actions=discrete(len(ACTIONS[settings.action_set])),
        action_repeat=settings.action_repeat,
        instruction_length=MAX_WORDS,
    )


def make(settings: DMLabSettings, spec: EnvSpec, slots: Slots) -> BatchedEnvironment:
    """See `Suite.code`."""
    from herd.components.suites.batch import SoloEnvironments  # noqa: PLC0415  only processes that play need it

    return SoloEnvironments(settings, spec, slots, f"{__name__}.level:LabLevel", standby=settings.prepare_games)


def _lacks(settings: DMLabSettings) -> str | None:
    showing = [task for task in settings.tasks if task in dmlab30() and dmlab30()[task].needs_dataset]
    if not showing or settings.dataset_path == "dummy":
        return None
    if settings.dataset_path is None:
        return f"env.dataset_path: {showing[0]} needs a folder of photographs, or dummy for plain pictures (docs/suites.md)"
    if not Path(settings.dataset_path).is_dir():
        return f"env.dataset_path {settings.dataset_path}: no such folder, and {showing[0]} needs its photographs"
    return None


def _protocol(env: Mapping[str, Any]) -> Sequence[str]:
    says = [f"{env['action_set']} actions", "held out" if env["hold_out"] else "as in training"]
    if env["dataset_path"] == "dummy":
        says.append("dummy pictures")
    if env["level_seeds"] is not None:
        says.append(f"{env['level_seeds']} games a level")
    return says


def _on_screen(settings: DMLabSettings) -> DMLabSettings:
    return settings.model_copy(update={"frame_height": 240, "frame_width": 320})


PART = Suite(
    kind="dmlab",
    settings=DMLabSettings,
    code=f"{__name__}:make",
    spec=_spec,
    packages=("deepmind_lab",),
    install="no wheel of it exists; build it, or the actor's image with it (docs/suites.md)",
    lacks=_lacks,
    reference_scores=reference_scores,
    protocol=_protocol,
    on_screen=_on_screen,
)
