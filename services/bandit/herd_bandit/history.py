"""RUN/bandit/history.jsonl: what each ensemble thought of its tiles over time; ``herd plot --bandit`` draws it.

A line is one record of one agent on one task: agent, task, episodes and env_frames (of the games counted so far), seconds (wall clock,
since the epoch), edges of the tiles in 1/tau [K + 1], and by tile, [K]: values, reports, return_sums, handed_out and votes, the last
four cumulative. A record is written only when a game ended since the last.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from herd.files import append_line, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from herd_bandit.bandits_vote import FloatArray
    from herd_bandit.task_bandit import TaskBandit

HISTORY = "history.jsonl"
MAX_BYTES = 64 << 20
"""Size limit. With 1.4 kB per record and one record per minute, one task reaches it in 33 days, 57 tasks in 14 hours."""
_DIGITS = 5
"""Number of significant digits, more than a colour can show."""


class History:
    """Appends records. When the file reaches ``max_bytes``, every second record of each ensemble is removed and the interval doubles."""

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
        with self._path.open(encoding="utf-8") as old, thinned.open("w", encoding="utf-8") as new:
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


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
