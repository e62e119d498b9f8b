"""From settings to spaces (without starting anything) and to running environments, of whichever suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.config.suites import installed_suites

if TYPE_CHECKING:
    from herd.config.contract import EnvSpec
    from herd.config.suites import SuiteSettings
    from herd.envs.api import BatchedEnvironment
    from herd.envs.suite import Suite


def suite_of(settings: SuiteSettings) -> Suite:
    """The suite that the settings are of."""
    suite: Suite = installed_suites()[settings.suite]
    return suite


def environment_spec(settings: SuiteSettings) -> EnvSpec:
    """Spaces of what ``settings`` describe. Needs no emulator; UnknownTaskError if a task does not exist."""
    return suite_of(settings).spec(settings)


def make_environments(
    settings: SuiteSettings, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    """``num_environments`` environments for the global slots ``first_slot``..: slot g plays task g modulo the number of tasks.

    What a slot plays and draws depends on ``seed`` and the slot alone, not on how slots are spread over processes.
    ``num_threads`` bounds the threads that step emulators at one time.
    """
    if num_environments < 1 or num_threads < 1 or first_slot < 0 or seed < 0:
        raise ValueError("num_environments and num_threads must be at least 1, first_slot and seed at least 0")
    return suite_of(settings).make(
        settings,
        environment_spec(settings),
        num_environments=num_environments,
        first_slot=first_slot,
        seed=seed,
        num_threads=num_threads,
    )
