"""The lineage under which this learner process publishes.

A version is (lineage, learner_updates). Every start of a learner opens a lineage higher than any that was ever published
from this run directory, so no number ever means two different weights, even if the last process died before its first checkpoint.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from herd.files import FileError, read_record, replace_file
from herd.protocols.weights.messages import MAX_FIRST_LINEAGE
from herd.run.paths import LINEAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class LineageError(Exception):
    """The file with the lineage is damaged or cannot be created; one line."""


def open_lineage(
    run_dir: Path,
    at_least: int = 0,
    *,
    on_failure: Callable[[OSError], None] | None = None,
    now: Callable[[], float] = time.time,
) -> int:
    """Open the next lineage (from 1 on, and not below ``at_least``), and write it to disk before it is used.

    If it cannot be written, the next start would use the same number. So the clock's milliseconds are used instead, which are far larger
    than counted numbers and different at every start. ``on_failure`` is called, and ``keep_lineage`` writes the number later. They are also
    used if there is a checkpoint (``at_least`` above 1) but no file.

    Raises:
        LineageError: the file is there and damaged: going on without it could give one number two meanings; or this run has none
            yet and it cannot be written: a run that cannot leave anything should not begin.
    """
    last = _read(run_dir)
    lineage = max((last or 0) + 1, at_least)
    if last is None and at_least > 1:
        # The disk that had the file is lost, and with it the lineages that were published after the checkpoint.
        lineage = max(lineage, round(now() * 1000))
    try:
        _write(run_dir, lineage)
    except OSError as error:
        if last is None:
            raise LineageError(f"{run_dir / LINEAGE}: cannot be written: {error.strerror or error}") from error
        lineage = max(lineage, round(now() * 1000))
        if on_failure is not None:
            on_failure(error)
    return lineage


def keep_lineage(run_dir: Path, lineage: int) -> None:
    """Put an open lineage on disk where it is not there yet, or was damaged since; costs one look at a small file.

    Raises:
        OSError: it still cannot be written.
    """
    try:
        last = _read(run_dir) or 0
    except LineageError:
        last = 0
    if last < lineage:
        _write(run_dir, lineage)


def _read(run_dir: Path) -> int | None:
    path = run_dir / LINEAGE
    try:
        return read_record(path, "a lineage", lambda said: checked_lineage(said["lineage"]))
    except FileNotFoundError:
        return None
    except FileError as error:
        raise LineageError(f"{error}; remove the file, and the learner continues after the lineage of its checkpoint") from error


def checked_lineage(lineage: object) -> int:
    """Return ``lineage`` if the next one can be opened; otherwise raise ``ValueError``."""
    if type(lineage) is not int or not 0 <= lineage < MAX_FIRST_LINEAGE:
        raise ValueError("its lineage is impossible")
    return lineage


def _write(run_dir: Path, lineage: int) -> None:
    replace_file(run_dir / LINEAGE, json.dumps({"lineage": lineage}))
