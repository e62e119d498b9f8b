"""How a service process starts and ends. Imports nothing heavy: bad settings are answered at once."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from herd.config.arguments import split_arguments
from herd.config.curve_keys import check_curve_keys
from herd.config.help import settings_help
from herd.config.loading import SettingsError, load_settings
from herd.config.settings import RunSettings
from herd.service.allocator import ensure_tuned_allocator
from herd.topology import SERVICES, component_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from herd.service.signals import StopRequest
    from herd.topology import ServiceName

EXIT_BAD_INPUT = 2
EXIT_SHARD_LOST = 75
"""Another shard of the learner is gone, and this one can go on only in a new group (EX_TEMPFAIL: try again)."""
EXIT_LOST = 74
"""It ended in order, and something that it should have left could not be written (EX_IOERR)."""
USAGE = """usage: python -m herd_{service} --config FILE [--config FILE ...] [--section.key value ...]

Runs one {service} process. Later files win over earlier ones, then the environment (HERD_LEARNER__BATCH_SIZE), then
options. SIGTERM, SIGINT and SIGHUP end it with exit code 0, or 74 where the disk did not take what it should have left. The run directory
(run_dir) is where it leaves its files; processes of one run need the same name, env, network, algorithm and loss."""


LEAST_DESCRIPTORS = 256
"""Files and sockets that a process may need: libraries, environments, 64 connections, metrics."""
MOST_DESCRIPTORS = 32_768
"""Asked for where they may be had: a server keeps a connection for each of its clients."""


class BadInputError(Exception):
    """What the operator gave cannot work, and no restart helps; one line."""


class LostAtEndError(Exception):
    """The process is at its end, and what it should have left behind could not be written; one line."""


def run_service(service: ServiceName, run: Callable[[RunSettings, StopRequest], None], stop: StopRequest) -> int:
    """Be the process ``python -m herd_<service>``; returns the exit code.

    0, or with one line on stderr 2 where its input cannot work, and 74 where it ended in order and something that it should have left
    is lost.

    ``run`` imports the service itself, so that bad settings are answered before anything heavy is loaded. ``stop`` was made before
    everything else. A service with torch starts again under the environment of ``herd.service.allocator`` first.
    """
    try:
        settings = parse_settings(service, sys.argv[1:])
        ensure_descriptors()
        own = component_of(service, settings).service
        if own.has_torch:
            ensure_tuned_allocator(own.module, stop)
        run(settings, stop)
    except (BadInputError, SettingsError) as error:  # a key file may go after it was looked at
        fail(service, str(error))
    except LostAtEndError as error:
        fail(service, str(error), EXIT_LOST)
    finally:
        let_go_of_output(sys.stdout, sys.stderr)
    return 0


def ensure_descriptors() -> None:
    """Let this process, and those that it starts, open as many files as they may.

    Raises:
        BadInputError: they may open too few to work with.

    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < LEAST_DESCRIPTORS:
        raise BadInputError(f"the limit of open files is {soft}, but a process needs {LEAST_DESCRIPTORS}: increase it (ulimit -n)")


def fail(service: str, message: str, exit_code: int = EXIT_BAD_INPUT) -> NoReturn:
    """One line on stderr; exit code 2: what the operator gave cannot work."""
    with suppress(OSError):  # a full disk under the log must not change the exit code
        print(f"{service}: {message}", file=sys.stderr, flush=True)
    raise SystemExit(exit_code)


def parse_settings(service: str, argv: Sequence[str]) -> RunSettings:
    """``--config FILE [--config FILE ...] [--section.key value ...]``, with the environment in between.

    Exits with code 2 and one line where the settings are wrong, or where a key that they call for is missing.
    """
    if {"-h", "--help"} & set(argv):
        own = component_of(service, RunSettings()).service
        without = {other.section for other in SERVICES if other is not own}
        print(f"{USAGE.format(service=service)}\n{settings_help(shutil.get_terminal_size().columns, without=without)}")
        raise SystemExit(0)
    try:
        files, overrides = split_arguments(argv, file_option="--config")
        settings = load_settings(files, overrides, os.environ)
        check_curve_keys(settings.security, os.environ, component_of(service, settings).roles)
    except SettingsError as error:
        fail(service, str(error))
    return settings


def let_go_of_output(*streams: TextIO) -> None:
    """Flush; what cannot be written (a full disk, a terminal or reader that went away) is dropped.

    Python ends with exit code 120 where its own last flush fails, which would hide how the process ended.
    """
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
