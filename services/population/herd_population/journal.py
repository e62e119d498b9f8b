"""Writes the journal: an event is durably on disk before it takes effect."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from herd.files import FileError, append_line, flush_directory, make_folder
from herd.protocols.population.journal import Began, journal_file, read_journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from herd.protocols.population.journal import Settings
    from herd_population.controller import Event


class Journal:
    """The journal of one run. One process writes it at a time."""

    def __init__(self, run_dir: Path, *, run: str, members: tuple[Settings, ...], note: Callable[[Event], None]) -> None:
        """Pass the events of an existing journal to ``note`` one at a time, or start one with the first settings of the ``members``.

        The events are not kept: a journal grows as long as the run, and memory must not.

        Raises:
            FileError: it is damaged, belongs to another population, or cannot be written; one line.
        """
        self._path = journal_file(run_dir)
        self.num_events = 0
        """Number of events in the journal when this process started."""
        began = Began(run=run, members=members)
        for event in read_journal(self._path):
            if self.num_events == 0 and event != began:
                raise FileError(f"{self._path}: belongs to another run or sweep: resume with its original settings, or start a new run")
            note(event)
            self.num_events += 1
        try:
            if self.num_events == 0:
                make_folder(self._path.parent)
                self.append(began)
                self.num_events = 1
            # Also if it exists: the process that created it may have been killed before this.
            flush_directory(self._path.parent)
        except OSError as error:
            raise FileError(f"{self._path}: cannot be written: {error.strerror or error}") from error

    def append(self, event: Event) -> None:
        """Add an event.

        Raises:
            OSError: the event is not in the journal.
        """
        append_line(self._path, event.model_dump_json())
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
