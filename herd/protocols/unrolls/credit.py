"""The learner's side of flow control, without I/O: how many unrolls each peer may send.

Invariant, after every call: sum of granted-and-unused over peers + received-and-not-consumed <= capacity.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from herd.transport import Peer

MAX_SESSIONS = 16_384
"""Four times the 4,000 actors that the system is designed for; bounds memory if a client invents actors (1 kB each)."""


class Grant(NamedTuple):
    """Tell ``peer`` that its cumulative grant is now ``granted_unrolls``."""

    peer: Peer
    granted_unrolls: int


@dataclass(slots=True)
class _Peer:
    """One session. Counters are cumulative since its welcome."""

    max_unrolls: int
    last_heard: float
    granted: int = 0
    received: int = 0
    wanted: int = 0

    @property
    def unused(self) -> int:
        return self.granted - self.received


class CreditPool:
    """Grants a fixed number of unrolls among peers: first come, first served, one message's worth at a time."""

    def __init__(self, capacity: int, *, expires_seconds: float, max_sessions: int = MAX_SESSIONS) -> None:
        """Start without sessions.

        Args:
            capacity: unrolls that may be granted, queued or in flight.
            expires_seconds: a peer silent this long is forgotten and its credit returns; also one that uses none of it for this
                long while others wait.
            max_sessions: peers that may be known at once, see ``place_for``.

        """
        self.capacity = capacity
        """Maximum number of unrolls that are granted, queued or in flight."""
        self._expires_seconds = expires_seconds
        self._max_sessions = max_sessions
        # Ordered by last_heard, oldest first, so that expiry checks only those that are due.
        self._peers: OrderedDict[Peer, _Peer] = OrderedDict()
        self._waiting: OrderedDict[Peer, None] = OrderedDict()
        # Peers that have sent no unrolls yet, oldest session first; only these can be replaced by others.
        self._newcomers: OrderedDict[Peer, None] = OrderedDict()
        # Peers with unused credit, and when ``expire`` first saw it; at most one per unroll of the capacity.
        self._unused_since: dict[Peer, float | None] = {}
        self.granted_unused = 0
        """Unrolls that peers may still send."""
        self.held = 0
        """Unrolls received and not consumed."""

    @property
    def num_peers(self) -> int:
        """Number of open sessions."""
        return len(self._peers)

    @property
    def num_waiting(self) -> int:
        """Number of peers whose request is not granted yet."""
        return len(self._waiting)

    def knows(self, peer: Peer) -> bool:
        """Return whether ``peer`` has a session; without one its messages are answered with ``HelloRequired``."""
        return peer in self._peers

    def is_silent_since(self, peer: Peer, moment: float) -> bool:
        """Return whether ``peer`` has a session and was not heard after ``moment``."""
        known = self._peers.get(peer)
        return known is not None and known.last_heard <= moment

    def granted(self, peer: Peer) -> int:
        """Return the cumulative grant of ``peer`` in its session, 0 without one."""
        known = self._peers.get(peer)
        return known.granted if known is not None else 0

    def most_wanted(self, peer: Peer) -> int:
        """Return the greatest cumulative grant that ``peer`` can want, one message beyond what was received in its session.

        A peer that wants more has counted unrolls that did not arrive, such as those before a late ``hello`` that began the session
        again, and would wait for ever.
        """
        known = self._peers[peer]
        return known.received + known.max_unrolls

    def place_for(self, peer: Peer) -> Peer | None:
        """Return the peer whose session must end before that of ``peer`` begins: None if none, ``peer`` itself if it must be refused.

        Where all places are taken, the session that has waited longest without sending an unroll makes room. Strangers can crowd
        each other out, and actors that begin, but no actor that has begun.
        """
        if peer in self._peers or len(self._peers) < self._max_sessions:
            return None
        return next(iter(self._newcomers), peer)

    def on_hello(self, peer: Peer, max_unrolls: int, now: float) -> list[Grant]:
        """Open a session for ``peer`` with counters at 0, and revoke unused credit of an earlier session.

        Returns:
            Grants to others that this made possible.

        Raises:
            ValueError: ``max_unrolls`` exceeds the capacity, so the peer could never send; refuse it.

        """
        if max_unrolls > self.capacity:
            raise ValueError(f"messages of {max_unrolls} unrolls do not fit into the learner's queue of {self.capacity}")
        self._forget(peer)
        self._peers[peer] = _Peer(max_unrolls, now)
        self._newcomers[peer] = None
        return self._grant()

    def on_credit_request(self, peer: Peer, wanted_unrolls: int, now: float) -> list[Grant]:
        """Request that the cumulative grant of ``peer`` reach ``wanted_unrolls``, at most one message beyond what it sent. Idempotent.

        Returns:
            Grants made now, perhaps to ``peer``. An unknown peer gets none.

        """
        known = self._heard(peer, now)
        if known is None:
            return []
        known.wanted = max(known.wanted, min(wanted_unrolls, self.most_wanted(peer)))
        if known.wanted > known.granted:
            self._waiting.setdefault(peer)
        return self._grant()

    def on_message_received(self, peer: Peer, num_unrolls: int, now: float) -> bool:
        """Turn credit of ``peer`` into held unrolls. Call ``on_consumed`` at once for a message that is then dropped or a duplicate.

        Returns:
            False, and nothing changed, if ``peer`` has no session or not that much credit: answer ``HelloRequired``.

        """
        known = self._heard(peer, now)
        if known is None or num_unrolls > known.unused:
            return False
        known.received += num_unrolls
        if not known.unused:
            self._unused_since.pop(peer, None)
        self._newcomers.pop(peer, None)
        self.granted_unused -= num_unrolls
        self.held += num_unrolls
        return True

    def on_consumed(self, num_unrolls: int) -> list[Grant]:
        """Free the places of unrolls that have left the queue.

        Raises:
            ValueError: more than are held.

        """
        if not 0 <= num_unrolls <= self.held:
            raise ValueError(f"{num_unrolls} unrolls consumed, {self.held} held")
        self.held -= num_unrolls
        return self._grant()

    def on_goodbye(self, peer: Peer) -> list[Grant]:
        """End the session of ``peer``."""
        self._forget(peer)
        return self._grant()

    def expire(self, now: float) -> list[Grant]:
        """Remove peers that were silent, or held credit that others wait for, for ``expires_seconds``; grant their credit to others."""
        while self._peers:
            peer, known = next(iter(self._peers.items()))
            if now - known.last_heard < self._expires_seconds:
                break
            self._forget(peer)
        for peer, since in list(self._unused_since.items()):
            if since is None:
                self._unused_since[peer] = now
            elif self._waiting and now - since >= self._expires_seconds:
                self._forget(peer)
        return self._grant()

    def _heard(self, peer: Peer, now: float) -> _Peer | None:
        known = self._peers.get(peer)
        if known is not None:
            known.last_heard = now
            self._peers.move_to_end(peer)
        return known

    def _forget(self, peer: Peer) -> None:
        known = self._peers.pop(peer, None)
        if known is not None:
            self.granted_unused -= known.unused
            self._unused_since.pop(peer, None)
            self._waiting.pop(peer, None)
            self._newcomers.pop(peer, None)

    def _grant(self) -> list[Grant]:
        """Grant whole requests from the front of the queue. If the first does not fit, the others wait, so that no request starves."""
        grants = []
        while self._waiting:
            peer = next(iter(self._waiting))
            known = self._peers[peer]
            missing = known.wanted - known.granted
            if missing > self.capacity - self.granted_unused - self.held:
                break
            del self._waiting[peer]
            known.granted += missing
            self.granted_unused += missing
            self._unused_since.setdefault(peer, None)
            grants.append(Grant(peer, known.granted))
        return grants
