"""Suites: families of environments. The key ``env.suite`` chooses one.

Importing a suite must be cheap, because every process loads its settings. Emulators are imported when environments are created.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, field_validator

from herd.components.registry import Part, PartSettings, Registry
from herd.components.settings import PositiveInt, Section
from herd.components.suites.api import Slots, UnknownTaskError
from herd.components.suites.reading import PlainReader

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from herd.components.suites.api import BatchedEnvironment
    from herd.components.suites.reading import Reader
    from herd.components.suites.scores import ReferenceScores
    from herd.contract.spaces import EnvSpec

DEFAULT_SUITE = "atari"
PROCESS_STEP_SECONDS = 600
"""Longest wait for an environment that is a process: on a CPU shared by four, the Lab compiles the largest maps for two minutes."""


class SuiteSettings(PartSettings):
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

    def longest_step_seconds(self) -> float:
        """Longest time that a step or a new game of one environment may take; 0: no time worth mentioning.

        A process that waits for it is alive for as long (``/healthz``).
        """
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite(Part[SuiteSettings]):
    """A family of environments. Optional features have a default that means that the suite does not have them."""

    code: str
    """``module:name`` of what makes a `herd.components.suites.api.BatchedEnvironment` of the settings, the spaces, and the
    `herd.components.suites.api.Slots` of a process."""
    spec: Callable[[Any], EnvSpec]
    """Returns the spaces for settings; UnknownTaskError if a task does not exist or cannot be played. A suite with fixed games starts no
    environment for this."""
    packages: tuple[str, ...] = ()
    """Import names of the packages that playing needs in addition to Herd's own."""
    install: str = ""
    """The command that installs ``packages``."""
    lacks: Callable[[Any], str | None] = lambda _settings: None
    """Returns one line about missing data, such as a data set, that these settings need; the line names the setting."""
    check: str = ""
    """``module:function`` that checks a task, for suites that play code of the user's (`herd.components.suites.checking.Check`)."""
    presets: Path | None = None
    """A folder of run files (YAML) that set published evaluation protocols; ``herd train pong SUITE-NAME`` adds one to an experiment."""
    reference_scores: Callable[[], Mapping[str, ReferenceScores]] = dict
    """Reference scores of its tasks, by name."""
    protocol: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _env: ()
    """Returns phrases for a report of scores about the settings (as JSON) that affect comparability."""
    frames_per_second: Callable[[Any, str], float] = lambda _settings, _task: 60.0
    """Returns the env frames per second of a video, for settings and a task."""
    on_screen: Callable[[Any], SuiteSettings] | None = None
    """Returns settings for the same games, step by step and with the same random numbers, as people see them: frames [H, W, 3], not
    stacked. With ``picture``, the observations stay as they are. None: the network sees the same picture as people."""
    picture: Callable[[Any], NDArray[np.uint8]] | None = None
    """Returns what people see, [H, W, 3], of the only environment in a batch with the settings of ``on_screen``. So even games that no seed
    repeats can be watched."""
    action_names: Callable[[Any], Sequence[str] | None] = lambda _settings: None
    """Returns the names of the actions, by number, for settings with which the tasks decide what an action means; None if they do not, or
    if that is unknown. A policy plays only tasks with the names that it was trained with."""
    reader: Callable[[Any, str], Reader] | None = None
    """Returns a reader for settings and a task, for callers that step environments themselves. None: observations already have the form
    that the network reads (`herd.components.suites.reading.PlainReader`)."""


SUITES = Registry("suite", __name__, SuiteSettings, first=(DEFAULT_SUITE,), discriminator="suite")


def suite_named(name: str) -> Suite:
    """Return an installed suite; KeyError if it is not installed."""
    suite = SUITES.parts[name]
    assert isinstance(suite, Suite)
    return suite


def suite_of(settings: SuiteSettings) -> Suite:
    """Return the suite of the settings."""
    return suite_named(settings.suite)


def missing_packages(suite: Suite) -> str | None:
    """Return one line with the missing packages of a suite and the command that installs them; None if nothing is missing."""
    missing = [package for package in suite.packages if find_spec(package) is None]
    if not missing:
        return None
    name = suite.settings.model_fields["suite"].default
    return f"env.suite {name} needs {', '.join(missing)}: {suite.install or 'pip install ' + ' '.join(missing)}"


def what_is_missing(settings: SuiteSettings) -> str | None:
    """Return one line with the missing packages or data; None if nothing is missing."""
    suite = suite_of(settings)
    return missing_packages(suite) or suite.lacks(settings)


def environment_spec(settings: SuiteSettings) -> EnvSpec:
    """Return the spaces of the environments. UnknownTaskError if a task does not exist or cannot be played.

    A suite that plays code of the user's runs it here, unless `herd.components.suites.checking.learn_spaces` has learned its spaces.
    """
    suite = suite_of(settings)
    learned = _learned.get(settings.model_dump_json()) if suite.check else None
    return suite.spec(settings) if learned is None else learned


def remember_spaces(settings: SuiteSettings, spec: EnvSpec) -> None:
    """Let `environment_spec` return ``spec`` for these settings without running code of the user's."""
    _learned[settings.model_dump_json()] = spec


_learned: dict[str, EnvSpec] = {}
"""Spaces that another process has read, by the settings."""


def make_reader(settings: SuiteSettings, task: str) -> Reader:
    """Return a reader for observations of environments of ``task`` that the caller steps. UnknownTaskError if there is no such task."""
    suite = suite_of(settings)
    return PlainReader(environment_spec(settings)) if suite.reader is None else suite.reader(settings, task)


def make_environments(
    settings: SuiteSettings,
    *,
    num_environments: int,
    first_slot: int,
    seed: int,
    num_threads: int,
    raise_errors: bool = False,
    beat: Callable[[], None] = lambda: None,
    replaced: Callable[[], None] = lambda: None,
) -> BatchedEnvironment:
    """Create environments for the global slots from ``first_slot`` on: slot g plays task g modulo the number of tasks. See `Slots`.

    The games of a slot do not depend on the distribution of slots over processes. UnknownTaskError is also raised if packages or data are
    missing.
    """
    if num_environments < 1 or num_threads < 1 or first_slot < 0 or seed < 0:
        raise ValueError("num_environments and num_threads must be at least 1, first_slot and seed at least 0")
    slots = Slots(num_environments, first_slot, seed, num_threads, raise_errors, beat, replaced)
    if (missing := what_is_missing(settings)) is not None:
        raise UnknownTaskError(missing)
    environments: BatchedEnvironment = SUITES.make(settings, environment_spec(settings), slots)
    return environments


def reference_scores(suite_name: str, task: str) -> tuple[float, float] | None:
    """Return the (random, human) scores of a task; None if the suite is not installed or has no scores for the task."""
    scores = suite_named(suite_name).reference_scores().get(task) if suite_name in SUITES.parts else None
    return None if scores is None else (scores.random, scores.human)


def require_known(tasks: Iterable[str], known: Iterable[str], what: str, plain_name: Callable[[str], str] = str) -> None:
    """Refuse tasks that are not ``known``, with close matches of ``plain_name(task)``.

    Raises:
        UnknownTaskError: one line.
    """
    names = list(known)
    for task in tasks:
        if task not in names:
            close = difflib.get_close_matches(plain_name(task), names, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
            raise UnknownTaskError(f"env.tasks: unknown {what} {task!r}; {hint}")


def with_reward_shaping(values: object) -> object:
    """Return ``values`` of a run with the suite's reward shaping, if they set none."""
    if not isinstance(values, Mapping):
        return values
    env, algorithm = values.get("env", {}), values.get("algorithm", {})
    if not isinstance(env, SuiteSettings):
        name = str(env.get("suite", DEFAULT_SUITE)) if isinstance(env, Mapping) else str(env)
        if name not in SUITES.parts:
            return values  # the section env refuses this
        env = SUITES.parts[name].settings
    if isinstance(algorithm, Mapping):
        return {**values, "algorithm": {"reward_shaping": env.reward_shaping, **algorithm}}
    if isinstance(algorithm, Section) and "reward_shaping" not in algorithm.model_fields_set:
        return {**values, "algorithm": algorithm.model_copy(update={"reward_shaping": env.reward_shaping})}
    return values
