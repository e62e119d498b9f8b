"""A replica's decisions: it serves the versions of its parent, the root, and relays requests for places to it. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING

from herd.protocols.weights.messages import IndexLeased, LeaseIndex, ReleaseIndex
from herd.rpc.envelope import Refused
from herd.rpc.serving import RequestRefused
from herd_paramserver.requests import Answer, RequestHandler
from herd_paramserver.store import Version, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.protocols.weights.client import WeightsFrame
    from herd.rpc.envelope import Message
    from herd.rpc.serving import Received
    from herd.transport import Peer
    from herd_paramserver.requests import Stores
    from herd_paramserver.store import WeightsStore

NAME = "replica"
"""Names of a replica's connections to its parent begin with this, by which another replica recognises and refuses it."""
MAX_RELAYED = 16_384
"""Relayed requests that may be without an answer: four times the 4,000 actors for which the system is designed, about 8 MB. The oldest is
forgotten first; its client asks again."""


class ReplicaHandler(RequestHandler):
    """Answers clients like the root if it can, and asks the parent if only the root may decide.

    Lost requests need no handling: the client repeats its request under a new number, and ignores answers to the older one.
    """

    def __init__(self, *, stores: Stores, upstream: str, max_relayed: int = MAX_RELAYED) -> None:
        super().__init__(stores)
        self._upstream = upstream
        self._max_relayed = max_relayed
        self._relayed: OrderedDict[int, tuple[Peer, int]] = OrderedDict()
        self._relay_ids = count(1)

    def answer(self, received: Received, now: float) -> Answer:
        """As for every parameter server; but a replica has no replicas, so that requests for places cannot go round in a ring."""
        if received.peer.name.startswith(f"{NAME}/".encode()):
            reason = f"this parameter server is itself a replica, of {self._upstream}: give --paramserver the address of the root"
            raise RequestRefused("other", reason, received.message.id)
        return super().answer(received, now)

    def answer_of_parent(self, message: Message) -> tuple[Peer, Message] | None:
        """Return the addressee of the parent's answer and the message for it; None if no client waits for it."""
        if not isinstance(message, IndexLeased | Refused) or (waiting := self._relayed.pop(message.id, None)) is None:
            return None
        peer, request_id = waiting
        return peer, message.model_copy(update={"id": request_id})

    def _decide(self, received: Received, now: float) -> Answer:  # noqa: ARG002  the root has the time
        request = received.message
        match request:
            case LeaseIndex():
                relay_id = next(self._relay_ids)
                self._relayed[relay_id] = received.peer, request.id
                if len(self._relayed) > self._max_relayed:
                    self._relayed.popitem(last=False)
                return Answer(to_parent=request.model_copy(update={"id": relay_id}))
            case ReleaseIndex():
                return Answer(to_parent=request)
        reason = (
            f"this parameter server is a replica and accepts weights only from its parent {self._upstream}: "
            "give it the address of the root, which was started without --paramserver"
        )
        raise RequestRefused("other", reason, request.id)


class Following:
    """Follows the weights of one agent at the parent, and never goes back to an older version.

    The replica keeps its weights while the parent is silent, and when the parent restarts without weights or with older ones. It follows
    the parent's next greater version; a new lineage is greater than all before it. ``now`` is any monotonic clock in seconds.
    """

    def __init__(self, store: WeightsStore, upstream: str, *, now: float) -> None:
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
