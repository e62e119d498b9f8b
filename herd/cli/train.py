"""``herd train``: runs all processes of a run on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import CommandError
from herd.cli.preflight import check_before_start
from herd.cli.run_paths import check_resumable, existing_run, finished, prepare_copy
from herd.components.settings import TRUE_WORDS
from herd.config.addresses import is_storage_address
from herd.config.encryption_keys import EVERY_ROLE, RUN_TOKEN_VARIABLE, check_curve_keys
from herd.config.experiments import shipped_experiments, suite_presets
from herd.config.loading import load_settings
from herd.config.loading.reference import settings_help
from herd.config.loading.sources import read_arguments, split_arguments
from herd.run.journals import METRICS
from herd.run.paths import CONFIG, RUNS, checkpoint_folders
from herd.service import EXIT_BAD_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from herd.config.run import RunSettings
    from herd.launch.placement import Placed
    from herd.launch.supervisor import Outcome
    from herd.service.signals import SignalInbox

_HEAD = """usage: herd train FILE [FILE ...] [--section.key value ...]

Trains on this machine: starts a parameter server, a learner and actors, shows their progress, and restarts those that
fail. The run directory gets config.yaml, metrics.jsonl, report.json, curve.png and checkpoints. It is runs/<name>,
runs/<name>-2, ... unless --run_dir names another. Ctrl-C stops the run cleanly and saves a checkpoint; a second Ctrl-C
kills it.

  herd train breakout --stop.wall_seconds 120
  herd train pong --run_dir runs/mine --stop.env_frames 2e6
  herd train runs/mine --stop.env_frames 4e6
  herd train s3://bucket/mine --stop.env_frames 4e6
  herd train mine.yaml --debug

FILE is a run file or the name of a shipped experiment (herd experiments lists them). The directory of a run continues
the run from its newest checkpoint, as --resume --run_dir DIRECTORY does. So does the address of its copy (copy_to), even
on an empty disk.
--debug trains with one actor and one learner that alternate in one thread of this process, so that breakpoints work
(docs/python-api.md).

Later sources of settings win: defaults, files in the order given, environment (HERD_LEARNER__BATCH_SIZE=64), command line
(--learner.batch_size 64). Lists are JSON, comma-separated or repeated. An option without a value means true."""
_DEBUG = "--debug"
MAX_NAMES = 4
"""Largest number of tasks that are named in the title of the live view."""
_MISSING_FILE = (
    "train needs a run file or the name of an experiment, such as breakout, or the directory of a run to continue (see herd train --help)"
)


def run(argv: Sequence[str]) -> int:
    """Train; the exit code is 0 when a stop condition or the user ended the run."""
    started = time.monotonic()
    if {"-h", "--help"} & set(argv):
        print(f"{_HEAD}\n{settings_help(shutil.get_terminal_size().columns)}")
        return 0
    if _DEBUG in argv:
        return _debug([word for word in argv if word != _DEBUG])
    from herd.service.signals import SignalInbox  # noqa: PLC0415  not needed for --help

    # From here on, a request to stop ends the run cleanly with exit code 0.
    with SignalInbox() as inbox:
        try:
            settings = read_settings(argv, os.environ, asked=lambda: inbox.asked)
            prepare_copy(settings)
            if settings.resume:
                resumes = check_resumable(settings)
                done = finished(settings)
                print(f"herd: {done or resumes}", file=sys.stderr)
                if done:
                    return 0
            for note in check_before_start(settings, asked=lambda: inbox.asked):
                print(f"herd: {note}", file=sys.stderr)
        except CommandError:
            if inbox.asked:  # nothing was started, and user code that is not waited for has no answer
                return 0
            raise
        return _train(settings, started, inbox)


def _debug(argv: Sequence[str]) -> int:
    """Train in this thread, where an interruption belongs to the debugger."""
    settings = read_settings(argv, os.environ, apart=False)
    if settings.resume:
        check_resumable(settings)
    from herd.api.debugging import debug, debug_settings  # noqa: PLC0415  not needed for --help
    from herd.api.runs import RunError  # noqa: PLC0415

    for note in check_before_start(debug_settings(settings), plays_tasks=False):
        print(f"herd: {note}", file=sys.stderr)
    print(_inputs(settings))
    try:
        run = debug(settings)
    except RunError as error:
        print(f"herd: {error}", file=sys.stderr)
        return 1
    print(f"run directory: {run.directory}")
    return 0


def read_settings(
    argv: Sequence[str], environ: Mapping[str, str], *, apart: bool = True, asked: Callable[[], bool] = lambda: False
) -> RunSettings:
    """Read the settings of ``herd train`` and check that what they name exists.

    ``apart``: whether code of the user's runs in a process of its own, as always but in a debugger. ``asked``: whether to end early.

    Raises:
        SettingsError: see ``load_settings`` and ``check_curve_keys``.
        CommandError: there is nothing to train, a task does not exist, or the observations do not allow the auxiliary loss.

    """
    files, overrides = _run_files(argv)
    settings = load_settings(files, overrides, environ)
    check_curve_keys(settings.security, environ, EVERY_ROLE)
    if settings.security.curve:
        from herd.transport.keys import check_server_key  # noqa: PLC0415  loads ZeroMQ; only where there are keys

        check_server_key(settings.security, environ)
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.components.suites.checking import QUICK, learn_spaces  # noqa: PLC0415  as above
    from herd.config.run_contract import objection_of_parts  # noqa: PLC0415  not needed for --help

    try:
        if apart:
            learn_spaces(settings.env, QUICK, asked=asked)  # one process for both: it takes a second to start
        spec = environment_spec(settings.env)
    except ValueError as error:  # UnknownTaskError is one
        raise CommandError(f"env.tasks: {error}" if "env." not in str(error) else str(error)) from error
    if (objection := objection_of_parts(settings, spec)) is not None:
        raise CommandError(objection)
    if settings.evaluation.protocol is not None:
        from herd.evaluation.protocols import PROTOCOLS  # noqa: PLC0415  few runs have one

        if (objection := PROTOCOLS[settings.evaluation.protocol].objection(settings.env)) is not None:
            preset = f"{settings.env.suite}-{settings.evaluation.protocol}"
            remedy = f" (the preset {preset}, given after the run file, sets it)" if preset in suite_presets() else ""
            raise CommandError(f"evaluation.protocol: {objection}{remedy}")
    return settings


def _run_files(argv: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the run files and the settings on the command line; a run that is continued has the settings of its config.yaml.

    Raises:
        CommandError: no file is given, or the run does not exist.

    """
    files, overrides = split_arguments(argv)
    if (address := next((word for word in argv if is_storage_address(word) and Path(word) in files), None)) is not None:
        if len(files) > 1:
            raise CommandError(f"{address}: a run is continued by itself, without other run files")
        config = existing_run(address, fetches_checkpoints=False) / CONFIG
        own = str(RUNS / address.rstrip("/").rpartition("/")[2])
        return [config], ["--resume", "--run_dir", own, "--copy_to", address, *overrides]
    if (directory := next((file for file in files if is_run(file)), None)) is not None:
        if len(files) > 1:
            raise CommandError(f"{directory}: a run is continued by itself, without other run files")
        return [directory / CONFIG], ["--resume", "--run_dir", str(directory), *overrides]
    given = {path[-1]: value for path, (value, _) in read_arguments(overrides).items() if len(path) == 1}
    resumes = str(given.get("resume")).lower() in TRUE_WORDS
    if files or (overrides and not resumes):
        return files, overrides
    if "run_dir" not in given:
        raise CommandError(_MISSING_FILE)
    config = Path(given["run_dir"]) / CONFIG
    if not config.is_file():
        missing = f": it contains no {CONFIG}" if config.parent.is_dir() else ""
        raise CommandError(f"{given['run_dir']}: no such run to resume{missing}")
    return [config], overrides


def is_run(file: Path) -> bool:
    """Whether a word on the command line is the directory of a run. A bare word is a shipped experiment first."""
    return (file / CONFIG).is_file() and str(file) not in shipped_experiments()


def _train(settings: RunSettings, started: float, inbox: SignalInbox) -> int:
    from herd.launch.plan import PortError, placed_here  # noqa: PLC0415
    from herd.launch.run_directory import RunDirectoryError  # noqa: PLC0415
    from herd.service.startup import let_go_of_output  # noqa: PLC0415  not needed for --help

    try:
        with placed_here(settings) as placed:  # before anything is created, so that a refused run leaves no files
            outcome = _supervise(settings, placed, started, inbox)
    except (PortError, RunDirectoryError) as error:
        raise CommandError(str(error)) from error
    with suppress(OSError):  # the terminal may be gone
        if outcome.message:
            print(f"herd: {outcome.message}", file=sys.stderr)
        if outcome.log_lines:
            print(*(f"  {line}" for line in outcome.log_lines), f"  (from {outcome.log})", sep="\n", file=sys.stderr)
    let_go_of_output(sys.stdout, sys.stderr)
    return outcome.exit_code


def _supervise(settings: RunSettings, placed: Sequence[Placed], started: float, inbox: SignalInbox) -> Outcome:
    from herd.components.suites.checking import spaces_variable  # noqa: PLC0415
    from herd.launch.plan import plan_children  # noqa: PLC0415
    from herd.launch.program import evaluate_at_the_end  # noqa: PLC0415  not needed for --help
    from herd.launch.run_directory import claim_run_directory, hold_run_directory, leave_token  # noqa: PLC0415
    from herd.launch.supervisor import Outcome, Supervisor  # noqa: PLC0415
    from herd.run.paths import planned_agent_directories  # noqa: PLC0415
    from herd.run.processes import begin_session, end_session  # noqa: PLC0415
    from herd.run.settings import changed_settings  # noqa: PLC0415
    from herd.view.summary import draw_curve, print_summary  # noqa: PLC0415
    from herd.view.terminal import TrainConsole, make_view  # noqa: PLC0415

    console = TrainConsole()
    if inbox.asked:
        return Outcome(0, "")
    settings = claim_run_directory(settings)
    changes = changed_settings(settings.directory, settings)
    with hold_run_directory(settings) as held:
        run_dir = held.path
        changed = [f"changed since the last start: {change}" for change in changes]
        for line in (f"run directory: {run_dir}", _inputs(settings), *changed):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        take_back_session = begin_session(run_dir)
        environ = dict(os.environ)
        if not settings.security.curve:
            environ[RUN_TOKEN_VARIABLE] = leave_token(run_dir, environ)
        environ |= spaces_variable(settings.env)
        plans = plan_children(settings, run_dir, placed, environ)
        agents = planned_agent_directories(settings)
        view = make_view(console, f"{settings.name}: {_played(settings.env.tasks)}", settings.stop, plans, agents)
        before = _results(agents)
        try:
            outcome = Supervisor(plans, run_dir, settings.stop, view, agent_directories=agents, started=started).run(inbox)
        finally:
            view.close()
        if outcome.exit_code == EXIT_BAD_INPUT and settings.resume and _results(agents) == before:
            with suppress(OSError):  # a process has refused the new settings: the run keeps those of its last start
                held.take_back_settings()
                take_back_session()
            return outcome
        end_session(run_dir, exit_code=outcome.exit_code, was_asked=inbox.asked, message=outcome.message, warnings=outcome.given_up)
        if settings.evaluation.final and outcome.exit_code == 0 and not inbox.asked:
            evaluate_at_the_end(run_dir, inbox, lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
        curve_problem = draw_curve(run_dir)
        _finish_copy(settings)
        with suppress(OSError):
            print_summary(console, run_dir, curve_problem)
    return outcome


def _finish_copy(settings: RunSettings) -> None:
    """Copy what the learners could not: pictures, how the session ended, and whatever the storage refused."""
    if settings.copy_to is None:
        return
    from herd.run.copies import StorageError, copy_run  # noqa: PLC0415  few runs have a copy
    from herd.run.paths import planned_agent_directories  # noqa: PLC0415  not needed for --help

    try:
        copy_run(settings.copy_to, settings.directory, planned_agent_directories(settings), settings.learner.keep_checkpoints)
    except StorageError as error:
        with suppress(OSError):  # the terminal may be gone
            print(f"herd: the copy of the run is not complete: {error}", file=sys.stderr)


def _results(agents: Sequence[Path]) -> list[tuple[list[Path], int]]:
    """Return what changes when a run trains: the checkpoints, and the bytes of the learning curve."""
    return [(checkpoint_folders(agent), curve.stat().st_size if (curve := agent / METRICS).exists() else 0) for agent in agents]


def _inputs(settings: RunSettings) -> str:
    """Return the line about what the learner trains on."""
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.config.run_contract import learner_inputs  # noqa: PLC0415  not needed for --help

    return learner_inputs(settings, environment_spec(settings.env))


def _played(tasks: Sequence[str]) -> str:
    return ", ".join(tasks) if len(tasks) <= MAX_NAMES else f"{', '.join(tasks[:MAX_NAMES])} and {len(tasks) - MAX_NAMES} more"
