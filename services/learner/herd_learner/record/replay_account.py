"""The replay section of report.json: measured values, not settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(slots=True)
class _Sums:
    num_rows: int = 0
    """Rows that entered the losses, once for each update."""
    num_replayed_rows: int = 0
    """Those of replayed unrolls among them."""
    staleness: int = 0
    """Sum over this agent's replayed unrolls, in policy versions."""
    num_stale: int = 0
    """Number of these unrolls."""
    max_staleness: int = 0

    def add(self, other: _Sums) -> None:
        self.num_rows += other.num_rows
        self.num_replayed_rows += other.num_replayed_rows
        self.staleness += other.staleness
        self.num_stale += other.num_stale
        self.max_staleness = max(self.max_staleness, other.max_staleness)


@dataclass(slots=True)
class ReplayAccount:
    """The replay statistics of one shard; the first shard adds those of the others."""

    _sums: _Sums = field(default_factory=_Sums)
    _delta: _Sums = field(default_factory=_Sums)

    def record(self, num_trained_rows: tuple[int, int], staleness: Sequence[int]) -> None:
        """Count an update on a batch.

        Args:
            num_trained_rows: of its online and of its replayed unrolls.
            staleness: of the replayed unrolls of this agent, in policy versions.
        """
        one = _Sums(sum(num_trained_rows), num_trained_rows[1], sum(staleness), len(staleness), max(staleness, default=0))
        self._sums.add(one)
        self._delta.add(one)

    def delta(self) -> dict[str, Any]:
        """Return what was recorded since the last call, as JSON."""
        delta, self._delta = self._delta, _Sums()
        return asdict(delta)

    def merge(self, delta: Mapping[str, Any]) -> None:
        """Add the statistics of another shard."""
        self._sums.add(_Sums(**delta))

    def report(self) -> dict[str, Any]:
        """Return the report of this session; null for values that never occurred."""
        sums = self._sums
        return {
            "fraction": sums.num_replayed_rows / sums.num_rows if sums.num_rows else None,
            "staleness": {"mean": sums.staleness / sums.num_stale, "max": sums.max_staleness} if sums.num_stale else None,
        }
