"""The description of a suite: ``SUITE`` in a folder of herd/envs/suites, or the object of an entry point of the group ``herd.suites``.

Importing a suite must be cheap, because every process loads its settings. Emulators are imported when environments are created.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.envs.api import UnknownTaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from herd.config.suites import SuiteSettings
    from herd.contract.spaces import EnvSpec
    from herd.envs.api import BatchedEnvironment
    from herd.envs.reading import Reader
    from herd.envs.scores import ReferenceScores


PROCESS_STEP_SECONDS = 600
"""Longest wait for an environment that is a process: on a CPU shared by four, the Lab compiles the largest maps for two minutes."""


def _says_nothing(env: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG001
    return ()


def _lacks_nothing(settings: Any) -> None:  # noqa: ARG001
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A family of environments. Optional features have a default that means that the suite does not have them."""

    settings: type[SuiteSettings]
    """Settings of the suite, its variant of ``env``. Their field ``suite`` is a literal of the suite's name."""
    spec: Callable[[Any], EnvSpec]
    """Returns the spaces for settings; UnknownTaskError if a task does not exist or cannot be played. A suite with fixed games starts no
    environment for this."""
    make: Callable[..., BatchedEnvironment]
    """``make(settings, spec, *, num_environments, first_slot, seed, num_threads)``; see `herd.envs.make.make_environments`."""
    packages: tuple[str, ...] = ()
    """Import names of the packages that playing needs in addition to Herd's own."""
    install: str = ""
    """The command that installs ``packages``."""
    lacks: Callable[[Any], str | None] = _lacks_nothing
    """Returns one line about missing data, such as a data set, that these settings need; the line names the setting."""
    try_out: Callable[[Any], Sequence[str]] = _says_nothing
    """Plays a step of every task before a run starts, for suites that play code of the user's. Returns one line for each thing that the
    user may not expect; UnknownTaskError if a task cannot be learned from."""
    inspect: Callable[[], tuple[bool, str]] | None = None
    """For ``herd doctor``: returns whether the contents of ``packages`` are complete, and a phrase about what was found."""
    presets: Path | None = None
    """A folder of run files (YAML) that set published evaluation protocols; ``herd train pong SUITE-NAME`` adds one to an experiment."""
    reference_scores: Callable[[], Mapping[str, ReferenceScores]] = dict
    """Reference scores of its tasks, by name."""
    protocol: Callable[[Mapping[str, Any]], Sequence[str]] = _says_nothing
    """Returns phrases for a report of scores about the settings (as JSON) that affect comparability."""
    longest_step_seconds: float = 0.0
    """Longest time that a step or a new game may take. A process that waits for it is alive for as long (``/healthz``)."""
    frames_per_second: float = 60.0
    """Env frames per second in a video of a game."""
    on_screen: Callable[[Any], SuiteSettings] | None = None
    """Returns settings for the same games, step by step and with the same random numbers, as people see them: frames [H, W, 3], not
    stacked. None: the network sees the same picture as people."""
    action_names: Callable[[Any], Sequence[str] | None] = _lacks_nothing
    """Returns the names of the actions, by number, for settings with which the tasks decide what an action means; None if they do not, or
    if that is unknown. A policy plays only tasks with the names that it was trained with."""
    reader: Callable[[Any, str], Reader] | None = None
    """Returns a reader for settings and a task, for callers that step environments themselves. None: observations already have the form
    that the network reads (`herd.envs.reading.PlainReader`)."""


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
