"""Writes the journal: an event is durably on disk before it takes effect."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from herd.config.population_journal import Began, JournalError, journal_file, read_journal
from herd.service.files import append_line, flush_directory

if TYPE_CHECKING:
    from pathlib import Path

    from herd.config.population_journal import Settings
    from herd_population.controller import Event


class Journal:
    """The journal of one run. One process writes it at a time."""

    def __init__(self, run_dir: Path, *, run: str, members: tuple[Settings, ...]) -> None:
        """Read an existing journal, or start one with the first settings of the ``members``.

        Raises:
            JournalError: it is damaged, belongs to another population, or cannot be written; one line.
        """
        self._path = journal_file(run_dir)
        self.events: list[Event] = read_journal(self._path)
        """Events in the journal when this process started."""
        began = Began(run=run, members=members)
        if not self.events:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self.append(began)
                flush_directory(self._path.parent)
                flush_directory(run_dir)
            except OSError as error:
                raise JournalError(f"{self._path}: cannot be written: {error.strerror or error}") from error
            self.events = [began]
        elif self.events[0] != began:
            raise JournalError(f"{self._path}: belongs to another run or sweep: remove it, or start the run with its original settings")

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
