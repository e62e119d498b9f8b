"""What a suite of environments is: ``SUITE`` of a folder in herd/envs/suites, or what an entry point of the group ``herd.suites`` loads.

Importing a suite must be cheap: its settings are part of every process's, and emulators are imported where environments are made.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.envs.api import UnknownTaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from herd.config.contract import EnvSpec
    from herd.config.suites import SuiteSettings
    from herd.envs.api import BatchedEnvironment
    from herd.envs.reading import Reader
    from herd.envs.scores import ReferenceScores


def _says_nothing(env: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG001
    return ()


def _lacks_nothing(settings: Any) -> None:  # noqa: ARG001
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A family of environments. What nothing is said of, the suite does not have."""

    settings: type[SuiteSettings]
    """Its variant of ``env``; the field ``suite`` is a literal of the suite's name."""
    spec: Callable[[Any], EnvSpec]
    """Spaces of what the settings describe; UnknownTaskError if a task does not exist or cannot be played. A suite of fixed games
    starts nothing for this."""
    make: Callable[..., BatchedEnvironment]
    """``make(settings, spec, *, num_environments, first_slot, seed, num_threads)``, as of `herd.envs.make.make_environments`."""
    packages: tuple[str, ...] = ()
    """Modules that playing needs beside Herd's own, by their import names."""
    install: str = ""
    """The command that brings ``packages``."""
    lacks: Callable[[Any], str | None] = _lacks_nothing
    """What these settings need beside packages and this machine does not have, such as a data set, in one line that names the setting."""
    inspect: Callable[[], tuple[bool, str]] | None = None
    """For ``herd doctor``: whether what ``packages`` should bring is complete, and what was found; a phrase."""
    presets: Path | None = None
    """A folder of run files (YAML) that set a protocol by which others measured; ``herd train pong SUITE-NAME`` puts one behind an
    experiment."""
    reference_scores: Callable[[], Mapping[str, ReferenceScores]] = dict
    """What others reach on its tasks, by name."""
    protocol: Callable[[Mapping[str, Any]], Sequence[str]] = _says_nothing
    """Phrases for a report of scores: what of the settings (as JSON) decides how comparable they are."""
    frames_per_second: float = 60.0
    """Env frames that a video of a game shows in a second."""
    on_screen: Callable[[Any], SuiteSettings] | None = None
    """Settings under which the same games, step by step and draw by draw, are seen as people see them: frames [H, W, 3], not stacked.
    None: people see what the network sees."""
    reader: Callable[[Any, str], Reader] | None = None
    """Of these settings and a task: reads what the environments say to those who step them themselves. None: what they say is already as
    the network sees it (`herd.envs.reading.PlainReader`)."""


def require_known(tasks: Iterable[str], known: Iterable[str], what: str, plain_name: Callable[[str], str] = str) -> None:
    """Refuse tasks that are not ``known``, naming what comes close to ``plain_name(task)``.

    Raises:
        UnknownTaskError: one line.
    """
    names = list(known)
    for task in tasks:
        if task not in names:
            close = difflib.get_close_matches(plain_name(task), names, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
            raise UnknownTaskError(f"env.tasks: unknown {what} {task!r}; {hint}")
