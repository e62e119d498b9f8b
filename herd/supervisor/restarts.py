"""What follows when a child ends without having been asked to. No processes, no clock."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

EXIT_BAD_INPUT = 2
"""What a service says when no restart can help: its settings, files or addresses cannot work."""


EXIT_SHARD_LOST = 75
"""What a learner's shard says when another is gone: no failure of its own."""


EXIT_LOST = 74
"""What a service says that ended in order, and could not write what it should have left."""


_NO_FAILURES = frozenset({0, EXIT_SHARD_LOST, *(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))})
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How patient the supervisor is."""

    first_delay_seconds: float = 0.5
    """A killed actor should be replaced at once, a crash loop should not burn the machine."""
    max_delay_seconds: float = 15.0
    """Doubled per failure up to here: 0.5 + 1 + 2 + 4 s and four starts of about 5 s make the fifth failure fall within a minute."""
    max_failures: int = 5
    """In a row, without progress in between."""
    early_seconds: float = 30.0
    """A failure this soon after the start, twice in the same way, will be the same again: loads torch in 2 s, on a busy machine in 20."""


@dataclass(frozen=True, slots=True)
class Failures:
    """A child's record."""

    in_a_row: int = 0
    """Since it last made progress. Of learner shards, one counts for all of them: whoever ended with a reason of its own."""
    restarts: int = 0
    """Over the whole run."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the child again after a pause."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the run."""

    reason: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class LastWords:
    """How a child failed: two failures with equal ``way`` have one cause, as far as can be told."""

    exit_code: int
    line: str
    """The last that it wrote; empty where it wrote nothing."""
    lived_seconds: float

    @property
    def way(self) -> tuple[int, str]:
        """Numbers in the line (times, addresses, process ids) aside."""
        return self.exit_code, _NUMBERS.sub("#", self.line)


def fails_for_good(before: LastWords | None, now: LastWords, *, progressed: bool, policy: RestartPolicy) -> bool:
    """Whether a child failed twice in the same way, each time right after its start. Who was killed from outside did not fail."""
    if before is None or progressed or now.exit_code in _NO_FAILURES:
        return False
    return before.way == now.way and max(before.lived_seconds, now.lived_seconds) <= policy.early_seconds


def after_exit(
    failures: Failures, *, exit_code: int, progressed: bool, policy: RestartPolicy, is_explained: bool = True
) -> tuple[Failures, Restart | GiveUp]:
    """Decide what follows an unasked exit.

    Args:
        failures: the child's record before this exit.
        exit_code: as ``subprocess`` gives it: negative for a signal.
        progressed: whether the child did new work (see ``progress.py``) since its last failure.
        policy: limits.
        is_explained: for `EXIT_SHARD_LOST`: another shard was counted for the end of the group, or is yet to be looked at.

    """
    if exit_code == EXIT_BAD_INPUT:
        return failures, GiveUp("its input cannot work (exit code 2)", EXIT_BAD_INPUT)
    if exit_code == EXIT_SHARD_LOST and (progressed or is_explained):
        # Whoever broke the group is counted; this one only follows.
        in_a_row = 0 if progressed else failures.in_a_row
        return Failures(in_a_row=in_a_row, restarts=failures.restarts + 1), Restart(policy.first_delay_seconds)
    in_a_row = 1 if progressed else failures.in_a_row + 1
    if in_a_row >= policy.max_failures:
        return failures, GiveUp(f"it ended {in_a_row} times in a row without making progress", 1)
    delay = min(policy.max_delay_seconds, policy.first_delay_seconds * 2 ** (in_a_row - 1))
    return Failures(in_a_row=in_a_row, restarts=failures.restarts + 1), Restart(delay)
