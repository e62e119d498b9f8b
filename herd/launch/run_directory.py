"""The directory of a run: created or resumed, and locked by one supervisor at a time."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.run.paths import LOCK, LOGS, PROCESSES
from herd.run.settings import keep_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from herd.config.run import RunSettings

TOKEN = "token"  # noqa: S105  a file's name
_MAX_NAMES = 10_000
"""Largest number of runs with one name; more are probably a mistake in a script."""


class HeldDirectory(NamedTuple):
    """A run directory that this process has locked."""

    path: Path
    take_back_settings: Callable[[], None]
    """Restores config.yaml and starts.jsonl, if a process refuses to start with the new settings; raises ``OSError``."""


class RunDirectoryError(ValueError):
    """The run directory cannot be used; one line."""


def claim_run_directory(settings: RunSettings) -> RunSettings:
    """Choose and create the directory; returns the settings with ``run_dir`` filled in.

    A given ``run_dir`` must be new or empty, unless the run is resumed. Without one, the first of runs/<name>, runs/<name>-2, ... that does
    not exist is used.

    Raises:
        RunDirectoryError: the directory is not empty, there is nothing to resume, or it is not writable.

    """
    try:
        directory = _resumed(settings) if settings.resume else _fresh(settings)
    except OSError as error:
        raise RunDirectoryError(f"{settings.directory}: cannot be created: {error.strerror or error}") from None
    return settings.model_copy(update={"run_dir": directory})


@contextmanager
def hold_run_directory(settings: RunSettings) -> Iterator[HeldDirectory]:
    """Lock ``settings.run_dir`` for this process.

    Writes config.yaml, adds a line to starts.jsonl, and removes announcements of an earlier session.

    Raises:
        RunDirectoryError: another ``herd train`` uses it, or it is not writable.

    """
    directory = settings.directory
    try:
        # Closed at exec: children do not inherit the lock, so it always ends with this process.
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunDirectoryError(f"{directory / LOCK}: cannot be written: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunDirectoryError(f"{directory}: in use by another herd train") from None
        try:
            take_back = _prepare(directory, settings)
        except OSError as error:
            raise RunDirectoryError(f"{error.filename or directory}: cannot be written: {error.strerror or error}") from None
        yield HeldDirectory(directory, take_back)
    finally:
        os.close(lock)


def leave_token(directory: Path, environ: Mapping[str, str]) -> str:
    """Return the token of this session, from ``environ`` or a new one. RUN/token contains it, readable only by this user.

    Processes of the run that are started by hand need it in ``HERD_RUN_TOKEN``. If the file cannot be written, the run continues.
    """
    token = environ.get(RUN_TOKEN_VARIABLE) or secrets.token_hex(32)
    with suppress(OSError):
        (directory / TOKEN).unlink(missing_ok=True)
        # O_EXCL: follows no symbolic link; mode 0600 from the first byte on.
        descriptor = os.open(directory / TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    return token


def _prepare(directory: Path, settings: RunSettings) -> Callable[[], None]:
    for name in (LOGS, PROCESSES):
        (directory / name).mkdir(exist_ok=True)
    take_back = keep_settings(directory, settings)
    for announcement in (directory / PROCESSES).glob("*.json"):
        announcement.unlink()
    return take_back


def _resumed(settings: RunSettings) -> Path:
    directory = settings.directory
    if settings.copy_to is not None:
        directory.mkdir(parents=True, exist_ok=True)
    elif not directory.is_dir():
        raise RunDirectoryError(f"{directory}: no such run to resume")
    return directory


def _fresh(settings: RunSettings) -> Path:
    if settings.run_dir is not None:
        settings.run_dir.mkdir(parents=True, exist_ok=True)
        if any(settings.run_dir.iterdir()):
            raise RunDirectoryError(f"{settings.run_dir}: not empty; add --resume to continue this run, or choose another --run_dir")
        return settings.run_dir
    first = settings.directory
    first.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, _MAX_NAMES):
        directory = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            directory.mkdir()  # atomic: two commands started together get two names
        except FileExistsError:
            continue
        return directory
    raise RunDirectoryError(f"{first}: {_MAX_NAMES} runs with this name exist; choose another --name or --run_dir")
