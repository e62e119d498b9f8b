"""The process around the request handler: one thread, one loop over the ROUTER and, at a replica, over the sockets to its parent."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from herd.config.contract import contract_digest
from herd.envs.make import environment_spec
from herd.service.allocator import FreeMemory
from herd.service.startup import BadInputError, announce_process
from herd.telemetry import Telemetry
from herd.telemetry.logs import configure_logging, get_logger, warn_limited
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.connections import UNREAD_SLACK_BYTES
from herd.wire.messages import Refused
from herd.wire.sockets import Poller, Router, new_context
from herd.wire.weights_client import MAX_SLICE_BYTES
from herd_paramserver.following import Following
from herd_paramserver.leases import IndexLeases
from herd_paramserver.meters import Meters
from herd_paramserver.relay import RelayTable
from herd_paramserver.replica import ReplicaHandler
from herd_paramserver.requests import ToParent
from herd_paramserver.root import RootHandler
from herd_paramserver.store import WeightsStore
from herd_paramserver.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.config.settings import RunSettings
    from herd.service.signals import StopRequest
    from herd.wire.messages import Message
    from herd.wire.sockets import Context, Dealer
    from herd_paramserver.requests import Reply, RequestHandler
    from herd_paramserver.store import Version

SERVICE: Final = "paramserver"
# How late a signal or an expired lease may be noticed; idle, it costs five wake-ups a second.
POLL_SECONDS = 0.2
# Messages served, and time taken over them, before the clock and the signals are looked at again. Checking a slice's digest takes a
# second per gigabyte.
MAX_BURST = 256
MAX_BURST_SECONDS = 0.5
# How old the ages that /readyz tells may be.
READINESS_SECONDS = 1.0


class ParameterServer:
    """Receives requests, has them answered, counts. With an ``upstream`` it is a replica, which also follows its parent."""

    def __init__(
        self,
        router: Router,
        handler: RequestHandler,
        *,
        store: WeightsStore[memoryview],
        telemetry: Telemetry,
        meters: Meters,
        upstream: Upstream | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._handler = handler
        self._store = store
        self._telemetry = telemetry
        self._meters = meters
        self._upstream = upstream
        self._clock = clock
        self._log = get_logger(SERVICE)
        self._free_memory = FreeMemory()
        self._lineage = -1
        self._readiness_at = clock()
        meters.watch_sockets(self.sockets)
        telemetry.set_ready(upstream is None)

    @property
    def endpoint(self) -> str:
        """Where it listens, with the actual port."""
        return self._router.endpoint

    @property
    def sockets(self) -> tuple[Router | Dealer, ...]:
        """Everything that ``turn`` reads from."""
        return (self._router, *(self._upstream.sockets if self._upstream is not None else ()))

    def run(self, stop: StopRequest) -> None:
        """Serve until ``stop``, and then what had arrived before it.

        Raises:
            BadInputError: it is its own parent.

        """
        poller = Poller(*self.sockets)
        while not stop:
            poller.poll(self._rest_seconds())
            self.turn()
        self.serve_waiting()
        self._log.info("stopped", version=self._store.visible.version if self._store.visible is not None else None)

    def turn(self) -> None:
        """Do everything that can be done now; never waits."""
        self.serve_waiting()
        if self._upstream is not None:
            self._follow(self._upstream)
        self._handler.tick(self._clock())
        self._free_memory.tick()
        self._telemetry.beat()

    def serve_waiting(self) -> None:
        """Answer what has arrived, at most ``MAX_BURST`` messages, and no more after ``MAX_BURST_SECONDS``."""
        until = self._clock() + MAX_BURST_SECONDS
        for _ in range(MAX_BURST):
            received = self._router.receive()
            if received is None:
                return
            self._serve(*received)
            if self._clock() >= until:
                return

    def _rest_seconds(self) -> float:
        if self._upstream is None:
            return POLL_SECONDS
        # The poller rounds to milliseconds: half of one more, and it never wakes too early.
        return min(POLL_SECONDS, self._upstream.rest_seconds + 0.0005)

    def _serve(self, peer: bytes, frames: Sequence[memoryview]) -> None:
        if self._upstream is not None and peer in self._upstream.routing_ids and self._store.visible is None:
            # Only before there are weights, which it cannot have from itself: later, somebody else may be using the name.
            raise BadInputError(
                f"paramserver.upstream: {self._upstream.endpoint} leads back to this parameter server; name its parent, or null at the root"
            )
        try:
            message = decode_header(frames[0])
            action = self._handler.answer(message, frames[1:], peer=peer, now=self._clock())
        except MalformedMessage as error:
            self._meters.malformed(error.label)
            warn_limited(f"malformed {error.label}", "dropped a malformed message", reason=error.reason, peer=_printable(peer))
            return
        self._meters.requested(message)
        if isinstance(action, ToParent):
            assert self._upstream is not None
            self._upstream.relay(action.message)
        elif action is not None:
            self._reply(message, action, peer)

    def _reply(self, request: Message, reply: Reply, peer: bytes) -> None:
        self._meters.answered(request, reply.message)
        if isinstance(reply.message, Refused):
            self._meters.refused(reply.refusal)
            warn_limited(f"refused {reply.refusal}", "refused a client", reason=reply.message.reason, peer=_printable(peer))
        if reply.new_version is not None:
            self._serves(reply.new_version)
        # False: the client is gone or does not read; it asks again.
        self._router.send(peer, [*encode(reply.message), *reply.payloads])

    def _follow(self, upstream: Upstream) -> None:
        version = upstream.follow()
        if version is not None:
            self._serves(version)
        for peer, answer in upstream.relayed_answers():
            self._router.send(peer, encode(answer))
        now = self._clock()
        if version is not None or now >= self._readiness_at:
            self._readiness_at = now + READINESS_SECONDS
            self._telemetry.set_ready(*upstream.following.readiness(now))

    def _serves(self, version: Version) -> None:
        """Tell everybody but the clients, who ask, that this version is visible."""
        self._meters.visible(version, self._store.num_bytes)
        # A network does not grow: from its first version on it is known how much a publication can hold.
        self._router.connections.allow(4 * self._store.num_bytes + 2 * UNREAD_SLACK_BYTES)
        if version.lineage != self._lineage:
            self._lineage = version.lineage
            self._log.info("serving a lineage", lineage=version.lineage, updates=version.updates)


def run(settings: RunSettings, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: an unknown task, an address that cannot be used, a run directory that cannot be written, itself for a parent.

    """
    configure_logging(SERVICE, run=settings.name)
    own = settings.paramserver
    try:
        contract = contract_digest(settings, environment_spec(settings.env))
    except ValueError as error:
        raise BadInputError(str(error)) from error
    telemetry = Telemetry(SERVICE, settings.name)
    context = new_context(settings.security)
    try:
        with ExitStack() as sockets:
            server = assemble(settings, contract, context, telemetry, sockets)
            try:
                metrics_port = telemetry.serve(own.metrics_host, own.metrics_port)
                announce_process(settings.directory, SERVICE, own.index, metrics_port=metrics_port)
            except OSError as error:
                raise BadInputError(str(error)) from error
            role = "root" if own.upstream is None else f"replica of {own.upstream}"
            get_logger(SERVICE).info("listening", endpoint=server.endpoint, metrics_port=metrics_port, role=role, contract=contract[:12])
            server.run(stop)
    finally:
        telemetry.close()
        context.term()


def assemble(settings: RunSettings, contract: str, context: Context, telemetry: Telemetry, sockets: ExitStack) -> ParameterServer:
    """Bind, and put a root or a replica together; ``sockets`` closes what it opened.

    Raises:
        BadInputError: an address that cannot be used.

    """
    own = settings.paramserver
    try:
        router = sockets.enter_context(Router(context, f"tcp://{own.host}:{own.port or '*'}", max_frame_bytes=MAX_SLICE_BYTES))
    except OSError as error:
        raise BadInputError(f"paramserver.host, paramserver.port: {error.strerror}") from error
    store: WeightsStore[memoryview] = WeightsStore()
    meters = Meters(telemetry)
    meters.watch_refusals(context.refusals)
    meters.watch_connections(router.connections)
    if own.upstream is None:
        leases = IndexLeases(lease_seconds=own.index_lease_seconds)
        meters.watch_leases(leases)
        root = RootHandler(run_id=settings.name, contract=contract, store=store, leases=leases)
        return ParameterServer(router, root, store=store, telemetry=telemetry, meters=meters)
    relay = RelayTable()
    replica = ReplicaHandler(run_id=settings.name, contract=contract, store=store, relay=relay, upstream=own.upstream)
    following = Following(store, own.upstream, now=time.monotonic())
    meters.watch_parent(following, relay)
    try:
        upstream = Upstream(
            context, own.upstream, run_id=settings.name, contract=contract, following=following, handler=replica, meters=meters
        )
    except OSError as error:
        raise BadInputError(f"paramserver.upstream: {error.strerror}") from error
    sockets.enter_context(closing(upstream))
    return ParameterServer(router, replica, store=store, telemetry=telemetry, meters=meters, upstream=upstream)


def _printable(peer: bytes) -> str:
    return peer.decode("ascii", "backslashreplace")[:64]
