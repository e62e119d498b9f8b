"""Decides what happens when a child ends unexpectedly. No processes, no clock."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from herd.service import EXIT_BAD_INPUT, EXIT_SHARD_LOST

_NO_FAILURES = frozenset({0, EXIT_SHARD_LOST, *(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))})
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits of restarts."""

    first_delay_seconds: float = 0.5
    """First delay: a killed actor is replaced at once, but a crash loop must not overload the machine."""
    max_delay_seconds: float = 15.0
    """The delay doubles with each failure up to this. With 0.5 + 1 + 2 + 4 s and four starts of 5 s, five failures take under a minute."""
    max_failures: int = 5
    """Number of consecutive failures without progress in between."""
    early_seconds: float = 30.0
    """Two failures of the same kind, each this soon after a start, will repeat. Loading torch takes 2 s, on a busy machine 20 s."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The record of a child's failures."""

    in_a_row: int = 0
    """Failures since it last made progress. Of a group of learner shards only the one that failed first counts."""
    restarts: int = 0
    """Failures over the whole run."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart the child after a pause."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not restart the child again; the supervisor knows whether the run can do without it."""

    reason: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a child ended. Two failures with an equal ``way`` probably have the same cause."""

    exit_code: int
    line: str
    """The last line that it wrote; empty if it wrote nothing."""
    lived_seconds: float

    @property
    def way(self) -> tuple[int, str]:
        """Exit code and last line, without numbers in the line (times, addresses, process ids)."""
        return self.exit_code, _NUMBERS.sub("#", self.line)


def fails_for_good(before: ExitRecord | None, now: ExitRecord, *, progressed: bool, policy: RestartPolicy) -> bool:
    """Return whether a child failed twice in the same way, each time right after its start. Being killed from outside does not count."""
    if before is None or progressed or now.exit_code in _NO_FAILURES:
        return False
    return before.way == now.way and max(before.lived_seconds, now.lived_seconds) <= policy.early_seconds


def after_exit(
    failures: Failures, *, exit_code: int, progressed: bool, policy: RestartPolicy, is_explained: bool = True
) -> tuple[Failures, Restart | GiveUp]:
    """Decide what happens after an unexpected exit.

    Args:
        failures: the child's record before this exit.
        exit_code: as in ``subprocess``, negative for a signal.
        progressed: whether the child has done new work since its last failure.
        policy: limits of restarts.
        is_explained: for `EXIT_SHARD_LOST`: whether another shard was counted for the end of the group, or still has to be examined.

    """
    if exit_code == EXIT_BAD_INPUT:
        return failures, GiveUp("its input cannot work (exit code 2)", EXIT_BAD_INPUT)
    if exit_code == EXIT_SHARD_LOST and (progressed or is_explained):
        # The shard that failed first is counted, not those that lost it.
        in_a_row = 0 if progressed else failures.in_a_row
        return Failures(in_a_row=in_a_row, restarts=failures.restarts + 1), Restart(policy.first_delay_seconds)
    in_a_row = 1 if progressed else failures.in_a_row + 1
    if in_a_row >= policy.max_failures:
        return failures, GiveUp(f"it ended {in_a_row} times in a row without progress", 1)
    delay = min(policy.max_delay_seconds, policy.first_delay_seconds * 2 ** (in_a_row - 1))
    return Failures(in_a_row=in_a_row, restarts=failures.restarts + 1), Restart(delay)
