"""The settings of every installed suite of environments, as the variants of one section.

Herd's own suites are the folders of herd/envs/suites. Other packages add suites by entry points of the group ``herd.suites``. The entry
point has the suite's name and loads an object with the attribute ``settings``: a `SuiteSettings` whose field ``suite`` is a literal of
that name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import Field, field_validator

from herd.components.settings import PositiveInt, Section

if TYPE_CHECKING:
    from herd.config.settings import NetworkSettings

GROUP = "herd.suites"
DEFAULT_SUITE = "atari"
_OWN = "herd.envs.suites"


class SuiteSettings(Section):
    """The settings that all suites share; each suite adds its own."""

    suite: str
    """Family of environments."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of the tasks to play."""
    action_repeat: PositiveInt = 1
    """Env frames per agent step."""

    @field_validator("tasks", check_fields=False)
    @classmethod
    def _each_task_is_named_once(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := [task for task in dict.fromkeys(tasks) if tasks.count(task) > 1]:
            raise ValueError(f"should name each task once ({', '.join(repeated)} is repeated)")
        return tasks

    makes_spaces: ClassVar[tuple[str, ...]] = ()
    """Further settings that determine observations and actions. Error messages name them if two processes do not fit together."""

    reward_shaping: ClassVar[str] = "none"
    """The value of ``algorithm.reward_shaping`` in runs that do not set it, for suites whose papers shape rewards."""

    of_the_machine: ClassVar[tuple[str, ...]] = ()
    """Settings that change no game and no score, such as a folder of a cache."""

    def game_settings(self) -> dict[str, Any]:
        """Return the settings that affect games and scores, by name. Scores are comparable if these are equal."""
        return {name: value for name, value in self if name not in self.of_the_machine}

    def objection(self, network: NetworkSettings) -> str | None:  # noqa: ARG002  suites override this
        """Say why this network cannot play this suite, in one sentence that names the setting; None if it can."""
        return None


@dataclass(frozen=True, slots=True)
class Suites:
    """The suites that were found."""

    usable: Mapping[str, Any]
    """Suites that can be used, each a `herd.envs.suite.Suite`, by name."""
    broken: Mapping[str, str]
    """Suites that cannot be loaded, by name, with one line about the cause. They do not affect runs of other suites."""


@cache
def installed_suites() -> Suites:
    """Find every suite that can be loaded here, and say why the others cannot."""
    usable: dict[str, Any] = {}
    broken: dict[str, str] = {}
    own = find_spec(_OWN)
    assert own is not None
    for folder in pkgutil.iter_modules(own.submodule_search_locations):
        usable[folder.name] = importlib.import_module(f"{_OWN}.{folder.name}").SUITE
    for point in entry_points(group=GROUP):
        if point.value.startswith(f"{_OWN}."):
            continue  # older versions also registered Herd's own suites
        if point.name in usable:
            broken[f"{point.name} of {point.value}"] = f"suite {point.name} of {point.value} is ignored: another suite has this name"
            continue
        try:
            suite = point.load()
            _check_settings(suite, point.name)
            usable[point.name] = suite
        except Exception as error:
            reason = " ".join(str(error).split())
            broken[point.name] = f"suite {point.name} of {point.value} cannot be loaded: {type(error).__name__}: {reason}"
    return Suites(dict(sorted(usable.items())), broken)


def reference_scores(suite_name: str, task: str) -> tuple[float, float] | None:
    """Return the (random, human) scores of a task; None if the suite is not installed or has no scores for the task."""
    suite = installed_suites().usable.get(suite_name)
    scores = None if suite is None else suite.reference_scores().get(task)
    return None if scores is None else (scores.random, scores.human)


def _check_settings(suite: Any, name: str) -> None:
    settings = getattr(suite, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, SuiteSettings)):
        raise TypeError("its settings are not a SuiteSettings")
    annotation = settings.model_fields["suite"].annotation
    if get_origin(annotation) is not Literal or get_args(annotation) != (name,) or settings.model_fields["suite"].default != name:
        raise TypeError(f"its settings need the field suite: Literal[{name!r}] = {name!r}")


def suite_union() -> Any:
    """The annotation of ``env``: a union of the installed suites' settings, discriminated by ``suite``."""
    models = tuple(suite.settings for suite in installed_suites().usable.values())
    return Annotated[Union[models], Field(discriminator="suite")]  # noqa: UP007  the number of members is not known here


def with_reward_shaping(values: object) -> object:
    """Return ``values`` of a run with the suite's reward shaping, if they set none."""
    if not isinstance(values, Mapping):
        return values
    env, algorithm = values.get("env", {}), values.get("algorithm", {})
    if not isinstance(env, SuiteSettings):
        suite = installed_suites().usable.get(str(env.get("suite", DEFAULT_SUITE))) if isinstance(env, Mapping) else None
        if suite is None:
            return values  # the section env refuses this
        env = suite.settings
    if isinstance(algorithm, Mapping):
        return {**values, "algorithm": {"reward_shaping": env.reward_shaping, **algorithm}}
    if isinstance(algorithm, Section) and "reward_shaping" not in algorithm.model_fields_set:
        return {**values, "algorithm": algorithm.model_copy(update={"reward_shaping": env.reward_shaping})}
    return values


def default_suite() -> SuiteSettings:
    """The suite that is played by default."""
    settings: SuiteSettings = installed_suites().usable[DEFAULT_SUITE].settings()
    return settings
