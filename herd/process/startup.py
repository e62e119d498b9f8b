"""How a service process starts and is told to stop. Imports nothing heavy: bad settings are answered at once."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from herd.config.arguments import split_arguments
from herd.config.loading import SettingsError, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import FrameType

    from herd.config.settings import RunSettings

EXIT_BAD_INPUT = 2
PROCESSES = "processes"
USAGE = """usage: python -m services.{service} --config FILE [--config FILE ...] [--section.key value ...]

Runs one {service} process. Later files win over earlier ones, then the environment (HERD_LEARNER__BATCH_SIZE), then
options. docs/configuration.md lists every setting. SIGTERM and SIGINT end it with exit code 0."""


def fail(service: str, message: str) -> NoReturn:
    """One line on stderr, exit code 2: what the operator gave cannot work."""
    print(f"{service}: {message}", file=sys.stderr, flush=True)
    raise SystemExit(EXIT_BAD_INPUT)


def parse_settings(service: str, argv: Sequence[str]) -> RunSettings:
    """``--config FILE [--config FILE ...] [--section.key value ...]``, with the environment in between.

    Exits with code 2 and one line where the settings are wrong.
    """
    if {"-h", "--help"} & set(argv):
        print(USAGE.format(service=service))
        raise SystemExit(0)
    try:
        files, overrides = split_arguments(argv, file_option="--config")
        return load_settings(files, overrides, os.environ)
    except SettingsError as error:
        fail(service, str(error))


class StopRequest:
    """Set by SIGTERM or SIGINT: finish what is under way, then exit 0."""

    def __init__(self) -> None:
        self._requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def __bool__(self) -> bool:
        """Whether the process was asked to stop."""
        return self._requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signature is Python's
        # Only this: a handler runs between two bytecodes of whatever was interrupted, where a lock could be held already.
        self._requested = True


def announce_process(run_dir: Path, service: str, number: int, *, metrics_port: int) -> None:
    """Write RUN/processes/<service>-<number>.json, where the live view finds this process's metrics."""
    directory = run_dir / PROCESSES
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{service}-{number}.json"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps({"pid": os.getpid(), "metrics_port": metrics_port}))
    temporary.replace(path)
