"""A replica's sockets to its parent: one per agent for weights, and one for index requests."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from herd.protocols.weights.client import MAX_SLICE_BYTES, PAUSE_SECONDS, WeightsClient
from herd.protocols.weights.messages import WEIGHTS
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.telemetry.logs import warn_limited
from herd.transport import Client, Limits, Peer
from herd_paramserver.replica import NAME
from herd_paramserver.store import InvalidSliceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from herd.rpc.envelope import Message
    from herd.transport.context import Context
    from herd_paramserver.meters import Meters
    from herd_paramserver.replica import Following, ReplicaHandler
    from herd_paramserver.store import Version

RELAY_QUEUE = 1024
"""Number of index requests that may wait for the parent: a quarter of 4,000 actors that start at the same time, 200 kB. Others repeat."""


class Follower:
    """Requests the weights of one agent from the parent, and stores newer versions."""

    def __init__(self, client: WeightsClient, following: Following, meters: Meters, clock: Callable[[], float]) -> None:
        self.client = client
        self.following = following
        self._meters = meters
        self._clock = clock

    def follow(self) -> Version | None:
        """Request newer weights if it is time, and process answers; returns a version that is newly served, if any."""
        client, following = self.client, self.following
        num_refused, num_malformed = client.num_refused, client.num_malformed
        client.request(following.version)
        frame = client.poll()
        if client.num_malformed > num_malformed:
            self._meters.malformed("other", client.num_malformed - num_malformed)
            warn_limited("malformed weights", "dropped damaged weights from the parent")
        if client.num_refused > num_refused:
            reason = client.refused or ""
            following.refused(reason, now=self._clock())
            warn_limited("refused by parent", "the parent refuses this replica", reason=reason)
        if frame is not None:
            try:
                return following.take(frame, now=self._clock())
            except InvalidSliceError as error:
                self._meters.malformed(error.reason)
                warn_limited("unfit weights", "dropped invalid weights from the parent", reason=str(error))
        elif not client.pending:
            following.not_modified(client.held, now=self._clock())
        return None


class Upstream:
    """Never blocks. Loses messages under way when a connection breaks; all requests are repeated.

    There is one follower per agent, each with its own connection and request, so that none waits for another. With A agents each pauses
    A x ``herd.protocols.weights.client.PAUSE_SECONDS`` after an answer 'nothing newer'. So a child sends its parent at most
    1 / PAUSE_SECONDS = 100 requests/s, for any number of agents and clients.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        followings: Sequence[Following],
        handler: ReplicaHandler,
        meters: Meters,
        max_version_bytes: int = MAX_SLICE_BYTES,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting. ``followings`` are ordered by agent; ``random`` is the source of jitter.

        Raises:
            OSError: the endpoint is not a valid address.

        """
        self.endpoint = endpoint
        self.followings = followings
        self._handler = handler
        self._meters = meters
        pause = PAUSE_SECONDS * len(followings)
        self._followers = [
            Follower(
                WeightsClient(
                    context,
                    endpoint,
                    run_id=run_id,
                    contract=contract,
                    agent=agent,
                    clock=clock,
                    random=random,
                    max_slice_bytes=max_version_bytes,
                    pause_seconds=pause,
                    name=NAME,
                ),
                following,
                meters,
                clock,
            )
            for agent, following in enumerate(followings)
        ]
        self._clients = [follower.client for follower in self._followers]
        name = f"{NAME}/{secrets.token_hex(8)}"
        self._relay = context.client(endpoint, name, Limits(max_frame_bytes=MAX_HEADER_BYTES, high_water_mark=RELAY_QUEUE))

    @property
    def sockets(self) -> tuple[Client, ...]:
        """The sockets, for a ``Poller`` and for byte counts."""
        return (*(client.socket for client in self._clients), self._relay)

    @property
    def rest_seconds(self) -> float:
        """Seconds until ``follow`` must be called again, even without a message."""
        return min(client.rest_seconds for client in self._clients)

    def follow(self) -> Iterator[tuple[int, Version]]:
        """Request newer weights of every agent if it is time, and process answers; yields (agent, version) of newly served versions."""
        for agent, follower in enumerate(self._followers):
            if (version := follower.follow()) is not None:
                yield agent, version

    def relay(self, message: Message) -> None:
        """Relay a message. It is lost while the parent is unavailable; the client repeats it."""
        self._relay.send(encode(message))

    def relayed_answers(self) -> Iterator[tuple[Peer, Message]]:
        """Yield answers and their addressees, at most as many as may be under way, so that clients are served too."""
        for _ in range(RELAY_QUEUE):
            frames = self._relay.receive()
            if frames is None:
                return
            try:
                answer = self._handler.answer_of_parent(WEIGHTS.decode(frames[0]))
            except MalformedMessage as error:
                self._meters.malformed(error.label)
                warn_limited("malformed answer", "dropped a malformed answer from the parent", reason=error.reason, parent=self.endpoint)
                continue
            if answer is not None:
                yield answer

    def close(self) -> None:
        """Close at once."""
        for client in self._clients:
            client.close()
        self._relay.close()
