"""The parameter server process around the request handler: one thread that polls the ROUTER and a replica's sockets to its parent."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from herd.components.suites import environment_spec
from herd.protocols.weights.messages import WEIGHTS
from herd.rpc.codec import encode
from herd.rpc.serving import Received, Reply, ServedRun
from herd.service.inbox import POLL_SECONDS, RequestInbox, open_router, serve
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError
from herd.telemetry.logs import get_logger
from herd_paramserver.leases import Liveness, PlaceLeases
from herd_paramserver.meters import Meters
from herd_paramserver.replica import Following, ReplicaHandler, readiness_of_all
from herd_paramserver.requests import RootHandler
from herd_paramserver.store import WeightsStore
from herd_paramserver.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.config.run import RunSettings
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest
    from herd.telemetry import Telemetry
    from herd.transport import Client, Server
    from herd.transport.context import Context
    from herd_paramserver.requests import RequestHandler, Stores
    from herd_paramserver.store import Version

# How old the ages in /readyz may be.
READINESS_SECONDS = 1.0


class ParameterServer:
    """Receives requests, sends the handler's answers, and counts. With an ``upstream`` it is a replica, which also follows its parent."""

    def __init__(
        self,
        router: Server,
        handler: RequestHandler,
        *,
        served: ServedRun,
        stores: Stores,
        telemetry: Telemetry,
        meters: Meters,
        upstream: Upstream | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._handler = handler
        self._stores = stores
        self._telemetry = telemetry
        self._meters = meters
        self._upstream = upstream
        self._clock = clock
        self._log = get_logger("paramserver")
        self._lineages = [-1] * len(stores)
        self._readiness_at = clock()
        self._inbox = RequestInbox(router, WEIGHTS, served, self._answer, meters, clock=clock)
        meters.watch_bytes("weights", *self.sockets)
        telemetry.set_ready(upstream is None)

    @property
    def endpoint(self) -> str:
        """The address on which it listens, with the actual port."""
        return self._router.endpoint

    @property
    def sockets(self) -> tuple[Server | Client, ...]:
        """The sockets that ``turn`` reads."""
        return (self._router, *(self._upstream.sockets if self._upstream is not None else ()))

    def run(self, stop: StopRequest) -> None:
        """Serve until ``stop``, then answer requests that arrived before it."""
        serve(stop, self._telemetry, self.sockets, self.turn, self._rest_seconds)
        self._inbox.serve_waiting()
        self._log.info("stopped", versions=[store.visible.version if store.visible is not None else None for store in self._stores])

    def turn(self) -> None:
        """Do all work that is possible now, without waiting."""
        self._inbox.serve_waiting()
        if self._upstream is not None:
            self._follow(self._upstream)
        self._handler.tick(self._clock())

    def _rest_seconds(self) -> float:
        if self._upstream is None:
            return POLL_SECONDS
        # The poller rounds to milliseconds. With half a millisecond more it never wakes too early.
        return min(POLL_SECONDS, self._upstream.rest_seconds + 0.0005)

    def _answer(self, received: Received) -> Reply | None:
        message = received.message
        self._meters.requested(message)
        answer = self._handler.answer(received, self._clock())
        if answer.to_parent is not None:
            assert self._upstream is not None
            self._upstream.relay(answer.to_parent)
        if answer.message is not None:
            self._meters.answered(message, answer.message)
        if answer.new_version is not None:
            self._serves(message.agent, answer.new_version)
        return answer

    def _follow(self, upstream: Upstream) -> None:
        is_new = False
        for agent, version in upstream.follow():
            is_new = True
            self._serves(agent, version)
        for peer, answer in upstream.relayed_answers():
            self._router.send(peer, encode(answer))
        now = self._clock()
        if is_new or now >= self._readiness_at:
            self._readiness_at = now + READINESS_SECONDS
            self._telemetry.set_ready(*readiness_of_all(upstream.followings, now))

    def _serves(self, agent: int, version: Version) -> None:
        """Announce in metrics, log and readiness that this version of this agent is served. Clients learn it when they ask."""
        self._meters.visible(agent, version)
        if version.lineage != self._lineages[agent]:
            self._lineages[agent] = version.lineage
            self._log.info("serving a lineage", agent=agent, lineage=version.lineage, updates=version.updates)


def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: a task is unknown, an address cannot be used, or the run directory cannot be written.

    """
    with ServiceProcess("paramserver", settings, identity) as process, ExitStack() as sockets:
        server = assemble(
            settings, identity, contract=process.contract, context=process.context, telemetry=process.telemetry, sockets=sockets
        )
        process.serve_metrics()
        parent = identity.addresses.get("paramserver")
        role = "root" if parent is None else f"replica of {parent[0]}"
        process.announce("listening", endpoint=server.endpoint, role=role)
        server.run(stop)


def assemble(
    settings: RunSettings, identity: Identity, *, contract: str, context: Context, telemetry: Telemetry, sockets: ExitStack
) -> ParameterServer:
    """Bind, and build a root or a replica; ``sockets`` closes the sockets that are opened.

    Raises:
        BadInputError: an address cannot be used.

    """
    spec = environment_spec(settings.env)
    version_bytes = settings.paramserver.max_version_bytes
    # Each agent has a version under way, and may have repeated it over a new connection.
    router = open_router(context, identity, max_frame_bytes=version_bytes, unread_frames=2 * settings.agents)
    sockets.enter_context(router)
    stores: Stores = tuple(WeightsStore(max_version_bytes=version_bytes) for _ in range(settings.agents))
    served = ServedRun("--paramserver", settings.name, contract, range(settings.agents))
    meters = Meters(telemetry)
    meters.watch_clients(router, context.refusals)
    if "paramserver" not in identity.addresses:
        liveness = Liveness(settings.agents, now=time.monotonic())
        # If every actor plays all tasks equally often, there is no reason to move one.
        stays_dense = settings.actor.environments % len(spec.task_names) != 0
        seconds = settings.paramserver.index_lease_seconds
        leases = PlaceLeases(liveness, now=time.monotonic(), lease_seconds=seconds, stays_dense=stays_dense)
        meters.watch_leases(leases, settings.agents)
        root = RootHandler(stores=stores, leases=leases, liveness=liveness)
        return ParameterServer(router, root, served=served, stores=stores, telemetry=telemetry, meters=meters)
    parent = identity.address("paramserver")
    replica = ReplicaHandler(stores=stores, upstream=parent)
    followings = [Following(store, parent, now=time.monotonic()) for store in stores]
    meters.watch_parent(followings)
    try:
        upstream = Upstream(
            context,
            parent,
            run_id=settings.name,
            contract=contract,
            followings=followings,
            handler=replica,
            meters=meters,
            max_version_bytes=version_bytes,
        )
    except OSError as error:
        raise BadInputError(f"--paramserver {parent}: {error.strerror}") from error
    sockets.enter_context(closing(upstream))
    return ParameterServer(router, replica, served=served, stores=stores, telemetry=telemetry, meters=meters, upstream=upstream)
