"""``herd.debug``: runs actor and learner alternately in one thread, so that breakpoints, prints and tracebacks work.

Actor, learner and their communication are the same as in every run: unrolls go over a socket to the learner's I/O thread, and weights
through the parameter server. Only the order of execution differs: instead of waiting for a batch, the learner lets the actor play another
message of unrolls. Services without user code (parameter server, bandit, replay) are separate processes.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from herd.api.runs import Run, RunError
from herd.api.training import resolve_settings
from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.config.errors import SettingsError
from herd.config.loading import load_settings
from herd.launch.child import Child, last_lines
from herd.launch.plan import PortError, Start, placed_here, plan_children
from herd.launch.run_directory import RunDirectoryError, claim_run_directory, hold_run_directory, leave_token
from herd.run.paths import LOGS
from herd.service.startup import BadInputError, LostAtEndError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from herd.api.training import Source
    from herd.config.run import RunSettings
    from herd.launch.plan import ChildPlan
    from herd.service.identity import Identity

_HERE = ("learner", "actor")
"""Services that run in this thread."""
_ALONE: Mapping[str, object] = {
    "actor.count": 1,
    "actor.inference": "local",
    "learner.shards": 1,
    "learner.compile": "off",
    "learner.work_ahead": "off",
}
"""Settings of a debugged run: one actor and one learner, without compilation."""
_PATIENCE_SECONDS = 10.0
"""Longest wait for a service that was asked to stop."""


def debug(settings: Source | None = None, /, **overrides: object) -> Run:
    """Train in this process and thread until a stop condition of the settings is met, and return the run.

    ``breakpoint()`` and a debugger's breakpoints work everywhere, including in environments, networks and losses, and pause the whole run.
    If anything raises an exception, the run ends and you get the exception with its original traceback. Ctrl-C raises
    `KeyboardInterrupt` and writes no further checkpoint. The log goes to stderr.

    Unlike `train`, this runs one actor with its own policy and one learner shard, compiles and prepares nothing in advance, and steps
    environments of the suite gymnasium in this process. It refuses runs with several agents.

    Args:
        settings: see `train`.
        overrides: see `train`.

    Raises:
        SettingsError: the settings cannot be used.
        RunError: a service ended, or files of the run could not be written.

    """
    resolved = debug_settings(resolve_settings(settings, overrides))
    try:
        with ExitStack() as running:
            placed = running.enter_context(placed_here(resolved))
            resolved = claim_run_directory(resolved)
            run_dir = running.enter_context(hold_run_directory(resolved)).path
            environ = dict(os.environ)
            if not resolved.security.curve:
                environ[RUN_TOKEN_VARIABLE] = leave_token(run_dir, environ)
                running.enter_context(_variable(RUN_TOKEN_VARIABLE, environ[RUN_TOKEN_VARIABLE]))
            plans = plan_children(resolved, run_dir, placed, environ)
            services = _Services([plan for plan in plans if plan.service not in _HERE], run_dir)
            running.callback(services.stop)
            services.start()
            learner, actor = (next(each.identity for each in placed if each.place.service == name) for name in _HERE)
            running.enter_context(_own_log())
            _take_turns(resolved, learner, actor, services)
    except (PortError, RunDirectoryError) as error:
        raise RunError(str(error)) from error
    except BadInputError as error:
        raise SettingsError(str(error)) from error
    except LostAtEndError as error:
        raise RunError(str(error)) from error
    return Run(run_dir)


def debug_settings(settings: RunSettings) -> RunSettings:
    """Return the settings of a run in one thread.

    Raises:
        SettingsError: the run cannot be executed in one thread.

    """
    if settings.agents > 1:
        raise SettingsError(
            f"agents: {settings.agents} agents cannot learn in one thread; for debugging set agents 1, without sweep and population"
        )
    in_this_process = {"env.vectorization": "sync"} if settings.env.suite == "gymnasium" else {}
    return load_settings([], [], {}, base=settings.model_dump(mode="json"), given={**_ALONE, **in_this_process})


def _take_turns(settings: RunSettings, learner: Identity, actor: Identity, services: _Services) -> None:
    # Imported by name, because the library must not import services.
    playing = import_module("herd_actor.actor").acting(settings, actor, stop=services, raise_errors=True)

    def play() -> None:
        acted = next(playing, None)
        if acted is not None:
            acted.wait_until_received()

    try:
        import_module("herd_learner.loop").run(settings, learner, stop=services, play=play)
    finally:
        playing.close()
    services.check()


class _Services:
    """The services in separate processes. The object is true, as a request to stop, when one of them has ended. None is restarted."""

    def __init__(self, plans: list[ChildPlan], run_dir: Path) -> None:
        self._plans = plans
        self._logs = run_dir / LOGS
        self._children: dict[str, Child] = {}

    def start(self) -> None:
        """Start all services."""
        for plan in self._plans:
            command = plan.command(Start(0, 0.0))
            self._children[plan.name] = Child(command, plan.environment, self._logs / f"{plan.name}.log", niceness=plan.niceness)

    def __bool__(self) -> bool:
        return any(child.exit_code() is not None for child in self._children.values())

    def check(self) -> None:
        """Check that all services are running.

        Raises:
            RunError: a service has ended.

        """
        for name, child in self._children.items():
            if child.exit_code() is not None:
                reason = "".join(last_lines(child.log, 1))
                raise RunError(f"{name} ended: {reason} (log: {child.log})")

    def stop(self) -> None:
        """Stop all services in order, and kill those that do not stop."""
        for child in self._children.values():
            child.end(_PATIENCE_SECONDS)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _own_log() -> Iterator[None]:
    """Restore the configuration of the log, which services change as if the process were theirs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
