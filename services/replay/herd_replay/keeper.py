"""Writes snapshots: in a thread while the service answers, and in the main thread at its end."""

from __future__ import annotations

import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from herd.telemetry.logs import warn_limited
from herd_replay.snapshot import SnapshotError, capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.stdlib import BoundLogger

    from herd.rpc.serving import AtMostOnce
    from herd_replay.assembly import Assembler
    from herd_replay.meters import Meters
    from herd_replay.snapshot import SnapshotFolder
    from herd_replay.store import EpisodeStore


class Keeper:
    """Writes a snapshot ``interval_seconds`` after the end of the previous one. A failing disk does not affect answers."""

    def __init__(
        self,
        folder: SnapshotFolder,
        *,
        store: EpisodeStore,
        assembler: Assembler,
        writers: AtMostOnce[None],
        meters: Meters,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._store = store
        self._assembler = assembler
        self._writers = writers
        self._meters = meters
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._due = clock() + interval_seconds
        self._thread = ThreadPoolExecutor(1, "snapshot")
        self._writing: tuple[Future[None], float] | None = None
        """The snapshot that is being written, and when it was taken."""
        self._kept_at: float | None = None

    @property
    def age_seconds(self) -> float:
        """Age of the newest snapshot; NaN without one. Safe from any thread."""
        return math.nan if self._kept_at is None else self._clock() - self._kept_at

    def restore(self, log: BoundLogger) -> None:
        """Restore the newest snapshot, if there is one.

        Raises:
            ForeignSnapshotError: it belongs to another run or contract.

        """
        restored = self._folder.load(self._store, self._assembler, self._writers)
        for line in restored.lost:
            if self._store.num_episodes:
                log.warning("skipped a part of the snapshot", reason=line)
            else:
                log.warning("skipped the snapshot", reason=line, instead="starting empty")
        if self._store.num_episodes:
            self._kept_at = self._clock()
            log.info("restored", agent_steps=self._store.num_steps, open_agent_steps=restored.open_steps)

    def tick(self) -> None:
        """Start a snapshot if it is due. Call it a few times per second; it never waits for the disk."""
        if self._writing is not None:
            if self._writing[0].done():
                self._finish()
        elif self._clock() >= self._due:
            captured = capture(self._store, self._assembler, self._writers, is_last=False)
            self._writing = self._thread.submit(self._folder.save, captured), self._clock()

    def close(self) -> bool:
        """Write the last snapshot; False if it could not be written."""
        if self._writing is not None:
            self._finish()
        captured = capture(self._store, self._assembler, self._writers, is_last=True)
        self._writing = self._thread.submit(self._folder.save, captured), self._clock()
        is_kept = self._finish()
        self._thread.shutdown()
        return is_kept

    def _finish(self) -> bool:
        """Wait for the end of the writing, and record its result."""
        assert self._writing is not None
        future, taken_at = self._writing
        self._writing = None
        try:
            future.result()
        except SnapshotError as error:
            self._meters.file_failed()
            warn_limited("snapshot", "the snapshot could not be written", reason=str(error))
            return False
        finally:
            self._due = self._clock() + self._interval_seconds
        self._kept_at = taken_at
        self._meters.snapshot_written()
        return True
