"""Writes the state, for the next process, and the history, for users. A failing disk does not affect answers."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from herd.files import MAX_JSON_BYTES, append_line, open_file, parse_json
from herd.protocols.bandit.tiling import tiling_of
from herd.telemetry.logs import warn_limited
from herd_bandit import snapshot
from herd_bandit.exchange import ClientGames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from structlog.stdlib import BoundLogger

    from herd.config.run import RunSettings
    from herd_bandit.bandits_vote import FloatArray
    from herd_bandit.exchange import Window
    from herd_bandit.meters import Meters
    from herd_bandit.task_bandit import TaskBandit, TaskBandits

HISTORY = "history.jsonl"
MAX_BYTES = 64 << 20
"""Size limit. With 1.4 kB per record and one record per minute, one task reaches it in 33 days, 57 tasks in 14 hours."""
_DIGITS = 5
"""Number of significant digits, more than a colour can show."""


class History:
    """RUN/bandit/history.jsonl: what each ensemble thought of its tiles over time; ``herd plot --bandit`` draws it.

    A line is one record of one agent on one task: agent, task, episodes and env_frames (of the games counted so far), seconds (wall clock,
    since the epoch), edges of the tiles in 1/tau [K + 1], and by tile, [K]: values, reports, return_sums, handed_out and votes, the last
    four cumulative. A record is written only when a game ended since the last. When the file reaches ``max_bytes``, every second record
    of each ensemble is removed and the interval doubles.
    """

    def __init__(
        self, directory: Path, *, interval_seconds: float, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        """Prepare. Nothing is written yet, and an existing file is continued."""
        self.interval_seconds = interval_seconds
        self._path = directory / HISTORY
        self._clock = clock
        self._max_bytes = max_bytes
        self._recorded: dict[tuple[int, str], int] = {}

    def record(self, bandits: Iterable[TaskBandit]) -> None:
        """Append a record of each ensemble that has counted a game since its last record.

        Raises:
            OSError: the disk is full; the records are lost, the file stays readable.

        """
        lines = []
        for bandit in bandits:
            key, episodes = (bandit.agent, bandit.task), bandit.tally.episodes
            if episodes and self._recorded.get(key) != episodes:
                lines.append(json.dumps(self._describe(bandit, episodes), separators=(",", ":")))
                self._recorded[key] = episodes
        if not lines:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self._path, "\n".join(lines))
        if self._path.stat().st_size > self._max_bytes:
            self._thin()

    def _describe(self, bandit: TaskBandit, episodes: int) -> dict[str, object]:
        tally = bandit.tally
        return {
            "agent": bandit.agent,
            "task": bandit.task,
            "episodes": episodes,
            "env_frames": tally.env_frames,
            "seconds": round(self._clock(), 1),
            "edges": _rounded(np.expm1(bandit.ensemble.tiling.edges())),
            "values": _rounded(bandit.evaluation),
            "reports": tally.reports.tolist(),
            "return_sums": _rounded(tally.return_sums),
            "handed_out": tally.handed_out.tolist(),
            "votes": tally.votes.tolist(),
        }

    def _thin(self) -> None:
        """Remove every second record. This takes about a second for 64 MB, and happens rarely."""
        thinned = self._path.with_suffix(".writing")
        seen: Counter[tuple[int, str]] = Counter()
        # Never a file that this class cannot have written: its one line could be larger than the memory.
        with open_file(self._path, MAX_JSON_BYTES) as old, thinned.open("wb") as new:
            for line in old:
                try:
                    record = parse_json(line)
                    key = (record["agent"], record["task"])
                except (ValueError, KeyError, TypeError):
                    continue  # damaged by the disk
                if seen[key] % 2 == 0:
                    new.write(line)
                seen[key] += 1
        thinned.replace(self._path)
        self.interval_seconds *= 2


class Keeper:
    """Writes the state every ``snapshot_interval_seconds`` and a record every ``history_interval_seconds``, and both at the end."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        bandits: TaskBandits,
        window: Window,
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
        for client, number, episodes in restored.clients:
            self._window.answered(client, number, ClientGames(dict(episodes)))
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
                window=self._window,
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


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
