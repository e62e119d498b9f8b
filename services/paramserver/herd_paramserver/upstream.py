"""A replica's sockets to its parent: one asks for newer weights, one passes index requests on."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from herd.telemetry.logs import warn_limited
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.messages import MAX_HEADER_BYTES
from herd.wire.sockets import Dealer
from herd.wire.weights_client import WeightsClient
from herd_paramserver.store import InvalidSliceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.wire.messages import Message
    from herd.wire.sockets import Context
    from herd_paramserver.following import Following
    from herd_paramserver.meters import Meters
    from herd_paramserver.replica import ReplicaHandler
    from herd_paramserver.store import Version

RELAY_QUEUE = 1024
"""Index requests that may wait for the parent: a quarter of 4,000 actors that start at one moment, 200 kB; the others ask again."""


class Upstream:
    """Never blocks. Loses data: whatever was under way when the connection breaks; both conversations ask again.

    It asks for weights ``herd.wire.weights_client.PAUSE_SECONDS`` after each 'nothing newer', so a child costs its parent at most
    1 / PAUSE_SECONDS = 100 requests/s, however many clients it has itself.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        following: Following,
        handler: ReplicaHandler,
        meters: Meters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start to connect.

        Raises:
            OSError: the endpoint is not an address.

        """
        self.endpoint = endpoint
        self.following = following
        self._handler = handler
        self._meters = meters
        self._clock = clock
        self._client = WeightsClient(context, endpoint, run_id=run_id, contract=contract, clock=clock)
        relay_id = f"relay/{secrets.token_hex(8)}"
        self._relay = Dealer(context, endpoint, routing_id=relay_id, max_frame_bytes=MAX_HEADER_BYTES, high_water_mark=RELAY_QUEUE)
        self.routing_ids = frozenset({self._client.routing_id.encode(), relay_id.encode()})
        """How the parent knows us."""

    @property
    def sockets(self) -> tuple[Dealer, Dealer]:
        """For a ``Poller`` and their byte counts."""
        return self._client.socket, self._relay

    @property
    def rest_seconds(self) -> float:
        """Until ``follow`` has something to do that no message announces."""
        return self._client.rest_seconds

    def follow(self) -> Version | None:
        """Ask for newer weights where it is time to, take what came; returns the version that is served from now on, if it is new."""
        client, following = self._client, self.following
        num_refused, num_malformed = client.num_refused, client.num_malformed
        client.request(following.version)
        frame = client.poll()
        if client.num_malformed > num_malformed:
            self._meters.malformed("other", client.num_malformed - num_malformed)
            warn_limited("malformed weights", "dropped weights that the parent sent damaged", parent=self.endpoint)
        if client.num_refused > num_refused:
            self._refused(client.refused or "")
        if frame is not None:
            self._meters.parent_answered("weights")
            try:
                return following.take(frame, now=self._clock())
            except InvalidSliceError as error:
                self._meters.malformed(error.reason)
                warn_limited("unfit weights", "dropped weights of the parent", reason=str(error), parent=self.endpoint)
        elif not client.pending:
            self._meters.parent_answered("not_modified")
            following.not_modified(client.held, now=self._clock())
        return None

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
        self._client.close()
        self._relay.close()

    def _refused(self, reason: str) -> None:
        self._meters.parent_answered("refused")
        self.following.refused(reason, now=self._clock())
        warn_limited("refused by parent", "the parent refuses this replica", reason=reason, parent=self.endpoint)
