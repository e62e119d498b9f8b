"""Computes the spaces of any suite from settings, without starting an environment, and creates environments."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from herd.config.suites import installed_suites
from herd.envs.api import UnknownTaskError
from herd.envs.reading import PlainReader

if TYPE_CHECKING:
    from herd.config.settings import RunSettings
    from herd.config.suites import SuiteSettings
    from herd.contract.spaces import EnvSpec
    from herd.envs.api import BatchedEnvironment
    from herd.envs.reading import Reader
    from herd.envs.suite import Suite


def suite_of(settings: SuiteSettings) -> Suite:
    """Return the suite of the settings."""
    return suite_named(settings.suite)


def suite_named(name: str) -> Suite:
    """Return an installed suite; KeyError if it is not installed."""
    suite: Suite = installed_suites().usable[name]
    return suite


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
    """Return the spaces of the environments. UnknownTaskError if a task does not exist or cannot be played."""
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
    """Return a reader for observations of environments of ``task`` that the caller steps. UnknownTaskError if there is no such task."""
    suite = suite_of(settings)
    return PlainReader(environment_spec(settings)) if suite.reader is None else suite.reader(settings, task)


def make_environments(
    settings: SuiteSettings, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    """Create ``num_environments`` environments for the global slots from ``first_slot`` on: slot g plays task g modulo the number of tasks.

    The games of a slot depend only on ``seed`` and the slot, not on the distribution of slots over processes. ``num_threads`` is the
    largest number of threads that step emulators at a time. UnknownTaskError is also raised if packages or data are missing.
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
