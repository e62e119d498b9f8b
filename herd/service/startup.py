"""Start and end of a service process. Imports nothing heavy, so that wrong settings are reported at once."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from herd.config.encryption_keys import check_curve_keys
from herd.config.errors import printable
from herd.config.loading import SettingsError, load_settings
from herd.config.loading.reference import settings_help
from herd.config.loading.sources import split_arguments
from herd.service import EXIT_BAD_INPUT, EXIT_LOST
from herd.service.allocator import ensure_tuned_allocator
from herd.service.identity import check_identity, component_of, identity_options, take_identity
from herd.topology import SERVICES, service_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from herd.config.addresses import ServiceName
    from herd.config.run import RunSettings
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest
    from herd.topology import Service

USAGE = """usage: python -m herd_{service} --config FILE [--config FILE ...] [options] [--section.key value ...]

Runs one {service} process. Settings: later files win over earlier ones, then the environment (HERD_LEARNER__BATCH_SIZE),
then the command line. The options say who the process is; a variable such as HERD_METRICS stands for --metrics. SIGTERM,
SIGINT and SIGHUP end it with exit code 0, or 74 if its last files could not be written. It writes its files to the run
directory (run_dir). Processes of one run need the same name, env, network, algorithm and loss.

options:"""


MIN_DESCRIPTORS = 256
"""Number of files and sockets that a process needs: libraries, environments, 64 connections, metrics."""
MAX_DESCRIPTORS = 32_768
"""Requested limit of open files: a server has a connection for each of its clients."""


class BadInputError(Exception):
    """The input cannot work, and a restart does not help; one line."""


class LostAtEndError(Exception):
    """The last files of an ending process could not be written; one line."""


def run_service(service: ServiceName, run: Callable[[RunSettings, Identity, StopRequest], None], stop: StopRequest) -> int:
    """Run the process ``python -m herd_<service>``; returns the exit code.

    The exit code is 0; 2 if the input cannot work; or 74 if the process ended cleanly but its last files could not be written. The latter
    two print one line on stderr.

    ``run`` imports the service itself, so that wrong settings are reported before anything heavy is loaded. ``stop`` was created before
    everything else. A service with torch first restarts with the environment of ``herd.service.allocator``.
    """
    try:
        settings, identity = parse_command_line(service, sys.argv[1:])
        ensure_descriptors()
        own = service_of(service)
        if own.has_torch:
            ensure_tuned_allocator(own.module, stop)
        run(settings, identity, stop)
    except (BadInputError, SettingsError) as error:  # a key file may disappear after the check
        fail(service, str(error))
    except LostAtEndError as error:
        fail(service, str(error), EXIT_LOST)
    finally:
        let_go_of_output(sys.stdout, sys.stderr)
    return 0


def ensure_descriptors() -> None:
    """Raise the limit of open files of this process and its children as far as allowed.

    Raises:
        BadInputError: the limit is too low.

    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < MIN_DESCRIPTORS:
        raise BadInputError(f"the limit of open files is {soft}, but a process needs {MIN_DESCRIPTORS}: increase it (ulimit -n)")


def fail(service: str, message: str, exit_code: int = EXIT_BAD_INPUT) -> NoReturn:
    """Print one line on stderr and exit with code 2 by default, for invalid input."""
    with suppress(OSError):  # a full disk under the log must not change the exit code
        print(printable(f"{service}: {message}"), file=sys.stderr, flush=True)
    raise SystemExit(exit_code)


def parse_command_line(service: str, argv: Sequence[str]) -> tuple[RunSettings, Identity]:
    """As `read_command_line`, with this process's environment. Also answers ``--help``, and checks that the keys can be read.

    Exits with code 2 and one line if the settings are wrong or a required key or address is missing.
    """
    own = service_of(service)
    if {"-h", "--help"} & set(argv):
        without = {"placement", *(other.section for other in SERVICES if other is not own)}
        options = "\n".join(f"  --{name:<12} {text}" for name, text in identity_options(own).items())
        settings_text = settings_help(shutil.get_terminal_size().columns, without=without)
        with suppress(BrokenPipeError):  # the reader (head, less) has exited
            print(f"{USAGE.format(service=service)}\n{options}\n{settings_text}")
        let_go_of_output(sys.stdout)
        raise SystemExit(0)
    try:
        settings, identity = read_command_line(own, argv, os.environ)
        roles = component_of(own, identity).roles
        check_curve_keys(settings.security, os.environ, roles)
        if settings.security.curve and len(roles) == 2:
            from herd.transport.keys import check_server_key  # noqa: PLC0415  loads ZeroMQ; only where there are keys

            check_server_key(settings.security, os.environ)
    except SettingsError as error:
        fail(service, str(error))
    return settings, identity


def read_command_line(service: Service, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[RunSettings, Identity]:
    """Read ``--config FILE [--config FILE ...] [options] [--section.key value ...]`` and the environment.

    Raises:
        SettingsError: one line.

    """
    identity, words, variables = take_identity(service, argv, environ)
    files, overrides = split_arguments(words, file_option="--config")
    settings = load_settings(files, overrides, variables)
    check_identity(component_of(service, identity), identity, settings)
    return settings, identity


def let_go_of_output(*streams: TextIO) -> None:
    """Flush streams, and drop output that cannot be written (a full disk, a closed terminal or pipe).

    If Python's own last flush failed, the exit code would be 120, which would hide how the process ended.
    """
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
