"""What a suite of environments is: the object that its entry point in the group ``herd.suites`` loads.

Importing a suite must be cheap: its settings are part of every process's, and emulators are imported where environments are made.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.envs.api import UnknownTaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from herd.config.contract import EnvSpec
    from herd.config.suites import SuiteSettings
    from herd.envs.api import BatchedEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A family of environments."""

    settings: type[SuiteSettings]
    """Its variant of ``env``; the field ``suite`` is a literal of the suite's name."""
    spec: Callable[[Any], EnvSpec]
    """Spaces of what the settings describe, without starting anything; UnknownTaskError if a task does not exist."""
    make: Callable[..., BatchedEnvironment]
    """``make(settings, spec, *, num_environments, first_slot, seed, num_threads)``, as of `herd.envs.make.make_environments`."""
    packages: tuple[str, ...] = ()
    """Modules that playing needs beside Herd's own, by their import names."""
    frames_per_second: float = 60.0
    """Env frames that a video of a game shows in a second."""


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
