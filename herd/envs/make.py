"""From settings to spaces (without starting anything) and to running environments, of whichever suite."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from herd.config.suites import installed_suites
from herd.envs.api import UnknownTaskError
from herd.envs.reading import PlainReader

if TYPE_CHECKING:
    from herd.config.contract import EnvSpec
    from herd.config.settings import RunSettings
    from herd.config.suites import SuiteSettings
    from herd.envs.api import BatchedEnvironment
    from herd.envs.reading import Reader
    from herd.envs.suite import Suite


def suite_of(settings: SuiteSettings) -> Suite:
    """The suite that the settings are of."""
    return suite_named(settings.suite)


def suite_named(name: str) -> Suite:
    """A suite that is installed; KeyError if it is not."""
    suite: Suite = installed_suites().usable[name]
    return suite


def missing_packages(suite: Suite) -> str | None:
    """What a suite needs and this machine lacks, with the command that brings it, in one line; None where nothing is missing."""
    missing = [package for package in suite.packages if find_spec(package) is None]
    if not missing:
        return None
    name = suite.settings.model_fields["suite"].default
    return f"env.suite {name} needs {', '.join(missing)}: {suite.install or 'pip install ' + ' '.join(missing)}"


def what_is_missing(settings: SuiteSettings) -> str | None:
    """What playing needs and this machine lacks, packages or data, in one line; None where nothing is missing."""
    suite = suite_of(settings)
    return missing_packages(suite) or suite.lacks(settings)


def environment_spec(settings: SuiteSettings) -> EnvSpec:
    """Spaces of what ``settings`` describe. UnknownTaskError if a task does not exist or cannot be played."""
    return suite_of(settings).spec(settings)


def fitness_objection(settings: RunSettings) -> str | None:
    """Return why a population cannot have its fitness on these tasks, in one sentence; None if it can.

    Raises:
        UnknownTaskError: a task does not exist or cannot be played.
    """
    if settings.population.strategy == "none" or settings.population.fitness != "human_normalised":
        return None
    references = suite_of(settings.env).reference_scores()
    missing = [name for name in environment_spec(settings.env).task_names if name not in references]
    if not missing:
        return None
    return (
        f"population.fitness human_normalised: there are no human scores for {', '.join(missing[:5])}; use episode_return, or a number "
        "of metrics.jsonl"
    )


def make_reader(settings: SuiteSettings, task: str) -> Reader:
    """Reads the observations of environments of ``task`` that somebody else steps. UnknownTaskError if there is no such environment."""
    suite = suite_of(settings)
    return PlainReader(environment_spec(settings)) if suite.reader is None else suite.reader(settings, task)


def make_environments(
    settings: SuiteSettings, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    """``num_environments`` environments for the global slots ``first_slot``..: slot g plays task g modulo the number of tasks.

    What a slot plays and draws depends on ``seed`` and the slot alone, not on how slots are spread over processes.
    ``num_threads`` bounds the threads that step emulators at one time. UnknownTaskError also where packages or data are missing.
    """
    if num_environments < 1 or num_threads < 1 or first_slot < 0 or seed < 0:
        raise ValueError("num_environments and num_threads must be at least 1, first_slot and seed at least 0")
    if (missing := what_is_missing(settings)) is not None:
        raise UnknownTaskError(missing)
    return suite_of(settings).make(
        settings,
        environment_spec(settings),
        num_environments=num_environments,
        first_slot=first_slot,
        seed=seed,
        num_threads=num_threads,
    )
