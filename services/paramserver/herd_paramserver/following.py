"""How a replica follows its parent: which versions it accepts, and how fresh they are. No I/O; the caller passes the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd_paramserver.store import Version, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.protocols.weights.client import WeightsFrame
    from herd_paramserver.store import WeightsStore


class Following:
    """Follows the weights of one agent at the parent, and never goes back to an older version.

    The replica keeps its weights while the parent is silent, and when the parent restarts without weights or with older ones. It follows
    the parent's next greater version; a new lineage is greater than all before it. ``now`` is any monotonic clock in seconds.
    """

    def __init__(self, store: WeightsStore[memoryview], upstream: str, *, now: float) -> None:
        self._store = store
        self._upstream = upstream
        self._heard_at = now
        self._has_answered = False
        self._taken_at = now
        self._parent_holds: Version | None = None
        self._refusal: str | None = None

    @property
    def version(self) -> Version | None:
        """The version that is served; None before the first."""
        return self._store.visible.version if self._store.visible is not None else None

    def silent_seconds(self, now: float) -> float:
        """Seconds since the parent's last answer, or since the start if it has not answered."""
        return now - self._heard_at

    def take(self, frame: WeightsFrame, *, now: float) -> Version | None:
        """Accept a version from the parent; returns it if it is served from now on.

        Raises:
            InvalidSliceError: the version is larger than allowed.

        """
        version = Version(*frame.version)
        self._heard(now, version, None)
        if not self._store.adopt(Weights(version, frame.digests, frame.slices)):
            return None
        self._taken_at = now
        return version

    def not_modified(self, held: tuple[int, int] | None, *, now: float) -> None:
        """Record that the parent has nothing newer. ``held`` is the version that it serves, if any."""
        self._heard(now, Version(*held) if held is not None else None, None)

    def refused(self, reason: str, *, now: float) -> None:
        """Record that the parent refuses this replica."""
        self._heard(now, self._parent_holds, reason)

    @property
    def lacks_nothing(self) -> bool:
        """Whether the replica has weights, or the parent has none either."""
        return self.version is not None or (self._has_answered and self._refusal is None and self._parent_holds is None)

    def readiness(self, now: float) -> tuple[bool, str]:
        """Return whether clients of this agent may use this replica, and a message for the operator.

        A replica with weights is ready regardless of its parent, because old weights are better than none.
        """
        version = self.version
        if version is None:
            return False, f"no weights yet; {self._about_parent(now)}"
        age = f"serves version {_text(version)}, received {now - self._taken_at:.1f} s ago"
        return True, f"{age}; {self._about_parent(now)}"

    def _about_parent(self, now: float) -> str:
        parent, version = f"the parent {self._upstream}", self.version
        if self._refusal is not None:
            return f"{parent} refuses this replica: {self._refusal}"
        if not self._has_answered:
            return f"{parent} has not answered for {self.silent_seconds(now):.1f} s"
        about = f"{parent} answered {self.silent_seconds(now):.1f} s ago"
        if self._parent_holds is None:
            return f"{about} and has no weights"
        if version is not None and self._parent_holds < version:
            return f"{about} with version {_text(self._parent_holds)}, which is older and is ignored"
        return about

    def _heard(self, now: float, held: Version | None, refusal: str | None) -> None:
        self._heard_at = now
        self._has_answered = True
        self._parent_holds = held
        self._refusal = refusal


def readiness_of_all(followings: Sequence[Following], now: float) -> tuple[bool, str]:
    """Return whether clients may use this replica: it has weights, and lacks none that the parent has."""
    if len(followings) == 1:
        return followings[0].readiness(now)
    is_ready = any(one.version is not None for one in followings) and all(one.lacks_nothing for one in followings)
    return is_ready, "; ".join(f"agent {agent}: {one.readiness(now)[1]}" for agent, one in enumerate(followings))


def _text(version: Version) -> str:
    return f"({version.lineage}, {version.updates})"
