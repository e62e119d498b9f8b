"""The place of an actor (agent, index), and how long it stays there: fixed by settings, or leased from the parameter server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.weights.messages import Place
from herd.protocols.weights.places import IndexLease
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from herd.config.run import RunSettings
    from herd.service.identity import Identity
    from herd.service.signals import Stop
    from herd.transport.context import Context


class Assignment:
    """The time in one place. It is true when it is over: the process was asked to stop, or must move. It can be used as a ``Stop``."""

    def __init__(self, place: Place, stop: Stop, lease: IndexLease | None) -> None:
        self.place = place
        self.run_is_over = False
        """Set by the actor when there is no more work."""
        self._stop = stop
        self._lease = lease

    def __bool__(self) -> bool:
        """Whether to leave this place. Renews the lease when it is due; takes 1 us otherwise."""
        if self._stop or self.run_is_over or self._lease is None:
            return bool(self._stop) or self.run_is_over
        self._lease.poll()
        return self._lease.place != self.place


class Assignments:
    """Yields assignments until the process is asked to stop or the run is over. Leases the places unless the identity fixes one."""

    def __init__(self, context: Context, settings: RunSettings, identity: Identity, stop: Stop) -> None:
        self._stop = stop
        self._fixed: Place | None = None
        self._lease: IndexLease | None = None
        # A single agent needs no number.
        agent = 0 if settings.agents == 1 else identity.agent
        if identity.index is not None and agent is not None:
            self._fixed = Place(agent, identity.index)
        else:
            self._lease = IndexLease(context, identity.address("paramserver"), run_id=settings.name)

    def __iter__(self) -> Iterator[Assignment]:
        """Yield an assignment. Request the next one when it is over."""
        while not self._stop:
            place = self._fixed if self._lease is None else self._lease.acquire(self._keeps_waiting)
            if place is None:
                return
            assignment = Assignment(place, self._stop, self._lease)
            yield assignment
            if assignment.run_is_over:
                return

    def close(self) -> None:
        """Give a leased place back."""
        if self._lease is not None:
            self._lease.close()

    def _keeps_waiting(self) -> bool:
        if self._lease is not None and self._lease.refused is not None:
            warn_limited("index refused", "the parameter server gives this actor no index", reason=self._lease.refused)
        return not self._stop
