"""Writes the state, for the next process, and the history, for users. A failing disk does not affect answers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from herd.protocols.bandit.tiling import tiling_of
from herd.telemetry.logs import warn_limited
from herd_bandit import snapshot
from herd_bandit.history import HISTORY, History

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.stdlib import BoundLogger

    from herd.config.run import RunSettings
    from herd_bandit.meters import Meters
    from herd_bandit.population import TaskBandits
    from herd_bandit.window import RequestWindow


class Keeper:
    """Writes the state every ``snapshot_interval_seconds`` and a record every ``history_interval_seconds``, and both at the end."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        bandits: TaskBandits,
        window: RequestWindow,
        meters: Meters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = settings.directory / snapshot.DIRECTORY
        self._run = settings.name
        self._tiling = tiling_of(settings.bandit)
        self._num_bandits = settings.bandit.bandits
        self._interval_seconds = settings.bandit.snapshot_interval_seconds
        self._bandits = bandits
        self._groups = next(iter(bandits.values())).groups
        self._window = window
        self._meters = meters
        self._clock = clock
        self._history = History(self._directory, interval_seconds=settings.bandit.history_interval_seconds)
        self._snapshot_at = clock() + self._interval_seconds
        self._record_at = clock() + self._history.interval_seconds
        self._kept_at: float | None = None

    def restore(self, log: BoundLogger) -> int:
        """Restore the newest intact snapshot, if there is one; returns the number of games in it.

        Raises:
            ForeignSnapshotError: the snapshot was made with other settings.

        """
        restored, damaged = snapshot.load(self._directory, tiling=self._tiling, num_bandits=self._num_bandits, groups=self._groups)
        for line in damaged:
            instead = f"continuing from {restored.path}" if restored is not None else "starting without a state"
            log.warning("skipped a snapshot", reason=line, instead=instead)
        if restored is None:
            return 0
        for bandit in self._bandits.values():
            known = restored.bandits.get((bandit.agent, bandit.task))
            if known is not None:
                bandit.ensemble, bandit.others, bandit.tally = known.ensemble, known.others, known.tally
        for client in restored.clients:
            self._window.restore(client)
        self._kept_at = self._clock()
        return self.num_episodes

    @property
    def num_episodes(self) -> int:
        """Number of games counted since the run began."""
        return sum(bandit.tally.episodes for bandit in self._bandits.values())

    @property
    def age_seconds(self) -> float:
        """Seconds since the state was last written; NaN if it never was. Safe from any thread."""
        return math.nan if self._kept_at is None else self._clock() - self._kept_at

    def tick(self) -> None:
        """Write the files that are due. Call it a few times per second."""
        now = self._clock()
        if now >= self._record_at:
            self.record()
            self._record_at = now + self._history.interval_seconds
        if now >= self._snapshot_at:
            self.save()
            # Counted from the end of the write, so that a slow disk leaves time for answers.
            self._snapshot_at = self._clock() + self._interval_seconds

    def save(self) -> bool:
        """Write the state now; False if it could not be written."""
        try:
            snapshot.save(
                self._directory,
                run=self._run,
                tiling=self._tiling,
                groups=self._groups,
                bandits=self._bandits.values(),
                clients=self._window.remembered(),
            )
        except snapshot.SnapshotError as error:
            self._meters.file_failed(snapshot.STATE)
            warn_limited("snapshot", "the state could not be written", reason=str(error))
            return False
        self._kept_at = self._clock()
        self._meters.snapshot_written()
        return True

    def record(self) -> None:
        """Append to the history now."""
        try:
            self._history.record(self._bandits.values())
        except OSError as error:
            self._meters.file_failed(HISTORY)
            warn_limited("history", "the history could not be written", reason=f"{error.filename or HISTORY}: {error.strerror or error}")
