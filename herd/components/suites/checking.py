"""Learns the spaces of a user's environments and checks them, in a process of their own: their code may do anything to its process.

That process reports what it does next (a text), a `Finding`, or the spaces. So the last text tells where it ended or hung.
"""

from __future__ import annotations

import hashlib
import json
import os
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from herd.components.suites import environment_spec, remember_spaces, suite_of
from herd.components.suites.api import UnknownTaskError
from herd.components.user_code import SPACES_VARIABLE, START_SECONDS, call_apart
from herd.contract.spaces import EnvSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.components.suites import SuiteSettings

Level = Literal["summary", "fine", "note", "problem"]
SUMMARY: Level = "summary"
FINE: Level = "fine"
NOTE: Level = "note"
PROBLEM: Level = "problem"


class Finding(NamedTuple):
    """One result of a check."""

    level: Level
    """``problem``: it cannot be learned from. ``note``: what its user may not expect. ``summary``: one line about the whole check."""
    what: str
    """One line."""
    advice: str = ""
    """What to do, one line."""


class Effort(NamedTuple):
    """How thorough a check is."""

    steps: int
    """Random steps in each trial."""
    seconds: float
    """Longest time of each trial: the step that exceeds it is the last."""
    is_full: bool
    """Whether everything is checked; otherwise only what decides whether training can begin."""


THOROUGH, QUICK = Effort(2000, 5.0, is_full=True), Effort(100, 0.5, is_full=False)


class Check(Protocol):
    """A suite's own check."""

    def __call__(self, settings: Any, task: str, effort: Effort, /) -> Iterator[Finding | str]:
        """Check a task; yield findings, and what is done next as a text."""


def learn_spaces(
    settings: SuiteSettings, effort: Effort | None = None, *, asked: Callable[[], bool] = lambda: False
) -> tuple[Finding, ...]:
    """Learn the spaces for `environment_spec` without running code of the user's in this process, and check every task with ``effort``.

    ``herd train`` gives them to its processes in `SPACES_VARIABLE`. ``asked``: whether to end the wait early.

    Raises:
        UnknownTaskError: they cannot be read; one line.
    """
    if not suite_of(settings).check or _read_variable(settings):
        return ()
    if (known := _found.get((settings.model_dump_json(), effort))) is not None:
        return known
    timeout_seconds = START_SECONDS + settings.longest_step_seconds()
    if effort is not None:
        timeout_seconds += len(settings.tasks) * (10 * effort.seconds + settings.longest_step_seconds())
    spec, error, findings = _asked(settings, settings.tasks if effort else (), effort, timeout_seconds, asked)
    if error is not None:
        raise UnknownTaskError(error)
    if spec is None:
        raise UnknownTaskError(f"env.tasks {findings[-1].what}")
    remember_spaces(settings, spec)
    return _found.setdefault((settings.model_dump_json(), effort), tuple(findings))


_found: dict[tuple[str, Effort | None], tuple[Finding, ...]] = {}


def check_task(settings: SuiteSettings, task: str, effort: Effort) -> list[Finding]:
    """Check one task of a suite with `Suite.check` in a new process; the wait is bounded."""
    timeout_seconds = START_SECONDS + 10 * effort.seconds + settings.longest_step_seconds()
    return _asked(settings, (task,), effort, timeout_seconds, spaces=False)[2]


def spaces_variable(settings: SuiteSettings) -> dict[str, str]:
    """Return the environment variable for the processes of a run, if there is something that they would have to run the user's code for."""
    if not suite_of(settings).check:
        return {}
    return {SPACES_VARIABLE: json.dumps({"of": _digest(settings), "spaces": environment_spec(settings).as_json()})}


def _read_variable(settings: SuiteSettings) -> bool:
    given = json.loads(os.environ.get(SPACES_VARIABLE, "{}"))
    if given.get("of") != _digest(settings):
        return False
    remember_spaces(settings, EnvSpec.from_json(given["spaces"]))
    return True


def _digest(settings: SuiteSettings) -> str:
    return hashlib.blake2b(settings.model_dump_json().encode(), digest_size=16).hexdigest()


def _asked(
    settings: SuiteSettings,
    tasks: tuple[str, ...],
    effort: Effort | None,
    timeout_seconds: float,
    asked: Callable[[], bool] = lambda: False,
    *,
    spaces: bool = True,
) -> tuple[EnvSpec | None, str | None, list[Finding]]:
    """Return the spaces, why they cannot be read, and what was found; how the process ended is a finding."""
    kind = type(settings)
    order = (f"{kind.__module__}:{kind.__qualname__}", settings.model_dump_json(), tasks, effort, spaces)
    answer = call_apart(f"{__name__}:report", order, timeout_seconds, asked)
    findings = [Finding(*value) for value in answer.values if isinstance(value, list)]
    told: dict[str, Any] = {name: value for each in answer.values if isinstance(each, dict) for name, value in each.items()}
    if answer.problem is not None:
        phase = next((value for value in reversed(answer.values) if isinstance(value, str)), f"{settings.tasks[0]}: starting")
        findings.append(Finding(PROBLEM, f"{phase}: {answer.problem}"))
    elif answer.printed:
        advice = "what it prints is in the log of each actor; let it print nothing in step() and reset()"
        findings.append(
            Finding(NOTE, f"{', '.join(settings.tasks)}: it prints, {answer.printed.replace(' bytes', ' bytes so far', 1)}", advice)
        )
    spec = EnvSpec.from_json(told["spaces"]) if "spaces" in told else None
    return spec, told.get("error"), findings


def report(kind: str, settings_json: str, tasks: list[str], effort: list[Any] | None, spaces: bool) -> Iterator[Any]:
    """Report, in the process of the environments, the ``spaces`` or why they cannot be read, and what is found of each task."""
    settings: SuiteSettings = resolve_name(kind).model_validate_json(settings_json)
    if spaces:
        yield f"{', '.join(settings.tasks)}: reading the spaces"
        try:
            yield {"spaces": environment_spec(settings).as_json()}
        except ValueError as error:  # UnknownTaskError is one
            yield {"error": str(error)}
            return
    for task in tasks:
        assert effort is not None
        for found in resolve_name(suite_of(settings).check)(settings, task, Effort(*effort)):
            yield f"{task}: {found}" if isinstance(found, str) else found
