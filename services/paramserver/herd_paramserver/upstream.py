"""A replica's sockets to its parent: one an agent asks for newer weights, one passes index requests on."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from herd.telemetry.logs import warn_limited
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.messages import MAX_HEADER_BYTES
from herd.wire.sockets import Dealer
from herd.wire.weights_client import MAX_SLICE_BYTES, PAUSE_SECONDS, WeightsClient
from herd_paramserver.store import InvalidSliceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.wire.messages import Message
    from herd.wire.sockets import Context
    from herd_paramserver.following import Following
    from herd_paramserver.meters import Meters
    from herd_paramserver.replica import ReplicaHandler
    from herd_paramserver.store import Version

RELAY_QUEUE = 1024
"""Index requests that may wait for the parent: a quarter of 4,000 actors that start at one moment, 200 kB; the others ask again."""


class Follower:
    """Asks the parent for the weights of one agent, and takes what is newer."""

    def __init__(self, client: WeightsClient, following: Following, meters: Meters, clock: Callable[[], float]) -> None:
        self.client = client
        self.following = following
        self._meters = meters
        self._clock = clock

    def follow(self) -> Version | None:
        """Ask for newer weights where it is time to, take what came; returns the version that is served from now on, if it is new."""
        client, following = self.client, self.following
        num_refused, num_malformed = client.num_refused, client.num_malformed
        client.request(following.version)
        frame = client.poll()
        if client.num_malformed > num_malformed:
            self._meters.malformed("other", client.num_malformed - num_malformed)
            warn_limited("malformed weights", "dropped weights that the parent sent damaged")
        if client.num_refused > num_refused:
            self._refused(client.refused or "")
        if frame is not None:
            self._meters.parent_answered("weights")
            try:
                return following.take(frame, now=self._clock())
            except InvalidSliceError as error:
                self._meters.malformed(error.reason)
                warn_limited("unfit weights", "dropped weights of the parent", reason=str(error))
        elif not client.pending:
            self._meters.parent_answered("not_modified")
            following.not_modified(client.held, now=self._clock())
        return None

    def _refused(self, reason: str) -> None:
        self._meters.parent_answered("refused")
        self.following.refused(reason, now=self._clock())
        warn_limited("refused by parent", "the parent refuses this replica", reason=reason)


class Upstream:
    """Never blocks. Loses data: whatever was under way when the connection breaks; all conversations ask again.

    There is one follower an agent, each with a connection and a request of its own, so that none waits for another. With A agents each
    asks A x ``herd.wire.weights_client.PAUSE_SECONDS`` after a 'nothing newer', so that a child costs its parent at most
    1 / PAUSE_SECONDS = 100 requests/s, however many agents the run and however many clients the child has.
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
    ) -> None:
        """Start to connect; ``followings``: by agent.

        Raises:
            OSError: the endpoint is not an address.

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
                    max_slice_bytes=max_version_bytes,
                    pause_seconds=pause,
                ),
                following,
                meters,
                clock,
            )
            for agent, following in enumerate(followings)
        ]
        self._clients = [follower.client for follower in self._followers]
        relay_id = f"relay/{secrets.token_hex(8)}"
        self._relay = Dealer(context, endpoint, routing_id=relay_id, max_frame_bytes=MAX_HEADER_BYTES, high_water_mark=RELAY_QUEUE)
        self.routing_ids = frozenset({relay_id.encode(), *(client.routing_id.encode() for client in self._clients)})
        """How the parent knows us."""

    @property
    def sockets(self) -> tuple[Dealer, ...]:
        """For a ``Poller`` and their byte counts."""
        return (*(client.socket for client in self._clients), self._relay)

    @property
    def rest_seconds(self) -> float:
        """Until ``follow`` has something to do that no message announces."""
        return min(client.rest_seconds for client in self._clients)

    def follow(self) -> Iterator[tuple[int, Version]]:
        """Ask for newer weights of every agent where it is time to, take what came; yields (agent, version) of what is served newly."""
        for agent, follower in enumerate(self._followers):
            if (version := follower.follow()) is not None:
                yield agent, version

    def relay(self, message: Message) -> None:
        """Pass a message on. It is lost while the parent is away: the client asks again."""
        self._relay.send(encode(message))

    def relayed_answers(self) -> Iterator[tuple[bytes, Message]]:
        """What came back and whom it is for; at most as much as may be under way, so that the clients get their turn."""
        for _ in range(RELAY_QUEUE):
            frames = self._relay.receive()
            if frames is None:
                return
            try:
                answer = self._handler.answer_of_parent(decode_header(frames[0]))
            except MalformedMessage as error:
                self._meters.malformed(error.label)
                warn_limited("malformed answer", "dropped a malformed answer of the parent", reason=error.reason, parent=self.endpoint)
                continue
            if answer is not None:
                yield answer

    def close(self) -> None:
        """Close at once."""
        for client in self._clients:
            client.close()
        self._relay.close()
