"""What the shards of a learner agree on in each turn of the training loop, and what follows for their versions. No I/O, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Turn(NamedTuple):
    """The contribution of a shard to a turn of the training loop."""

    is_ready: bool = False
    """Whether it has its part of a batch."""
    stop: bool = False
    """Whether it was told to stop, or its time is over."""
    log_due: bool = False
    """Whether a point is due by shard 0's clock; the others' clocks are ignored."""
    checkpoint_due: bool = False
    """Whether a checkpoint is due by shard 0's clock."""
    may_publish: bool = True
    """Whether its last slice is at the parameter server, or superseded there."""
    newer_lineage: int = 0
    """A greater lineage at the parameter server; 0 for none."""
    lineage: int = 0
    """Lineage; all shards use that of shard 0."""
    num_frames: int = 0
    """Env frames in its part of the batch."""
    is_ordered: bool = False
    """Whether shard 0 has an order of the population to carry out."""
    has_replayed: bool = False
    """Whether it has the replayed unrolls of its part of the batch."""


def combine(turns: Sequence[Turn]) -> Turn:
    """Combine the turns of all shards: ready and replaying if all are, stop if one must stop, frames summed."""
    first = turns[0]
    return Turn(
        is_ready=all(each.is_ready for each in turns),
        stop=any(each.stop for each in turns),
        log_due=bool(first.log_due),
        checkpoint_due=bool(first.checkpoint_due),
        may_publish=all(each.may_publish for each in turns),
        newer_lineage=max(each.newer_lineage for each in turns),
        lineage=first.lineage,
        num_frames=sum(each.num_frames for each in turns),
        is_ordered=bool(first.is_ordered),
        has_replayed=all(each.has_replayed for each in turns),
    )


class VersionSchedule:
    """Decides in which lineage a shard publishes, and when its next version is due. All shards decide alike, from the same turns."""

    def __init__(self, lineage: int, *, is_first: bool, num_shards: int) -> None:
        self.lineage = lineage
        self.is_due = False
        """Whether a version is to be published as soon as the one before has been sent."""
        self._is_first = is_first
        self._num_shards = num_shards
        self._published_lineage = 0

    def adopt(self, turn: Turn, open_lineage: Callable[[int], int]) -> Turn:
        """Adopt the lineage of shard 0.

        If the parameter server has a newer one than this run directory, shard 0 opens a still newer one with ``open_lineage`` (at least
        this number), so that actors follow. The other shards learn it in the next turn.
        """
        self.lineage = turn.lineage
        if turn.newer_lineage < self.lineage:
            return turn
        if self._is_first:
            self.lineage = open_lineage(turn.newer_lineage + 1)
        return self._without_publication(turn)

    def enter(self, turn: Turn, publish: Callable[[], None]) -> Turn:
        """Publish at once in a lineage that all shards have adopted.

        Until actors have its weights, their unrolls belong to the previous lineage. With ``max_policy_lag`` these are too old to learn
        from, so that no update and no publication would follow.
        """
        if turn.lineage == self._published_lineage or turn.newer_lineage >= turn.lineage:
            return turn
        publish()
        return self._without_publication(turn)

    def updated(self, learner_updates: int, interval_updates: int) -> None:
        """Note an update, which ``learner_updates`` includes; a version follows another after ``interval_updates``."""
        if learner_updates % interval_updates == 0:
            self.is_due = True

    def published(self) -> None:
        """Note that a version is being published."""
        self.is_due = False
        self._published_lineage = self.lineage

    def _without_publication(self, turn: Turn) -> Turn:
        return turn._replace(may_publish=self._num_shards == 1)  # a single shard never waits for the others' slices
