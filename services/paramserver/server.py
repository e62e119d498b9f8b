"""The process around the request handler: one thread, one ROUTER socket, metrics, signals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from herd.config.contract import contract_digest
from herd.envs.make import environment_spec
from herd.process.startup import announce_process
from herd.telemetry import Telemetry
from herd.telemetry import metric_names as names
from herd.telemetry.logs import configure_logging, get_logger, warn_limited
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.messages import GetWeights, NotModified, Published, Refused, StalePublish, Weights
from herd.wire.sockets import Poller, Router, new_context
from herd.wire.weights_client import MAX_SLICE_BYTES
from services.paramserver.leases import IndexLeases
from services.paramserver.requests import RequestHandler
from services.paramserver.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.config.settings import RunSettings
    from herd.process.startup import StopRequest
    from herd.wire.messages import Message
    from services.paramserver.requests import Reply

SERVICE: Final = "paramserver"
# How late a signal or an expired lease may be noticed; idle, it costs five wake-ups a second.
POLL_SECONDS = 0.2
# Messages served before the clock and the signals are looked at again.
MAX_BURST = 256


class BadInputError(Exception):
    """What the operator gave cannot work; one line."""


class ParameterServer:
    """Receives requests, has them answered, counts."""

    def __init__(
        self,
        router: Router,
        handler: RequestHandler,
        *,
        store: WeightsStore[memoryview],
        leases: IndexLeases,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._handler = handler
        self._store = store
        self._leases = leases
        self._telemetry = telemetry
        self._clock = clock
        self._log = get_logger(SERVICE)
        self._lineage = -1
        self._answers = {answer: telemetry.counter(names.PARAMSERVER_ANSWERS, answer=answer) for answer in names.ANSWERS}
        self._versions = telemetry.counter(names.PARAMSERVER_VERSIONS)
        self._stale = telemetry.counter(names.PARAMSERVER_STALE_PUBLISHES)
        self._weights_bytes = telemetry.gauge(names.PARAMSERVER_WEIGHTS_SIZE)
        telemetry.read(names.PARAMSERVER_LEASES, lambda: float(len(leases)))
        telemetry.read(names.BYTES_IN, lambda: float(router.bytes_in), stream="weights")
        telemetry.read(names.BYTES_OUT, lambda: float(router.bytes_out), stream="weights")

    def run(self, stop: StopRequest) -> None:
        """Serve until ``stop``, and then what had arrived before it."""
        poller = Poller(self._router)
        while not stop:
            poller.poll(POLL_SECONDS)
            self.serve_waiting()
            self._leases.expire(self._clock())
            self._telemetry.beat()
        self.serve_waiting()

    def serve_waiting(self) -> None:
        """Answer what has arrived, at most ``MAX_BURST`` messages."""
        for _ in range(MAX_BURST):
            received = self._router.receive()
            if received is None:
                return
            self._serve(*received)

    def _serve(self, peer: bytes, frames: Sequence[memoryview]) -> None:
        try:
            message = decode_header(frames[0])
            reply = self._handler.answer(message, frames[1:], now=self._clock())
        except MalformedMessage as error:
            self._telemetry.counter(names.MALFORMED_MESSAGES, reason=error.label).inc()
            warn_limited(f"malformed {error.label}", "dropped a malformed message", reason=error.reason, peer=_printable(peer))
            return
        if reply is None:
            return
        self._count(message, reply, peer)
        # False: the client is gone or does not read; it asks again.
        self._router.send(peer, [*encode(reply.message), *reply.payloads])

    def _count(self, request: Message, reply: Reply, peer: bytes) -> None:
        answer = reply.message
        if isinstance(answer, Weights):
            self._answers["weights"].inc()
        elif isinstance(answer, NotModified):
            self._answers["not_modified"].inc()
        elif isinstance(answer, Refused):
            warn_limited(f"refused {answer.reason}", "refused a client", reason=answer.reason, peer=_printable(peer))
            if isinstance(request, GetWeights):
                self._answers["refused"].inc()
        elif isinstance(answer, StalePublish):
            self._stale.inc()
        elif isinstance(answer, Published) and reply.new_version is not None:
            self._versions.inc()
            self._telemetry.set_weights_version(*reply.new_version)
            self._weights_bytes.set(self._store.num_bytes)
            if reply.new_version.lineage != self._lineage:
                self._lineage = reply.new_version.lineage
                self._log.info("serving a lineage", lineage=self._lineage, updates=reply.new_version.updates)


def run(settings: RunSettings, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: an unknown task, an address in use, a run directory that cannot be written.

    """
    configure_logging(SERVICE, run=settings.name)
    own = settings.paramserver
    try:
        contract = contract_digest(settings, environment_spec(settings.env))
    except ValueError as error:
        raise BadInputError(str(error)) from error
    store: WeightsStore[memoryview] = WeightsStore()
    leases = IndexLeases(lease_seconds=own.index_lease_seconds)
    handler = RequestHandler(run_id=settings.name, contract=contract, store=store, leases=leases)
    telemetry = Telemetry(SERVICE, settings.name)
    context = new_context()
    try:
        try:
            router = Router(context, f"tcp://{own.host}:{own.port or '*'}", max_frame_bytes=MAX_SLICE_BYTES)
        except OSError as error:
            raise BadInputError(f"paramserver.host, paramserver.port: {error.strerror}") from error
        with router:
            server = ParameterServer(router, handler, store=store, leases=leases, telemetry=telemetry)
            try:
                metrics_port = telemetry.serve(own.metrics_host, own.metrics_port)
                announce_process(settings.directory, SERVICE, 0, metrics_port=metrics_port)
            except OSError as error:
                raise BadInputError(str(error)) from error
            telemetry.set_ready(True)
            log = get_logger(SERVICE)
            log.info("listening", endpoint=router.endpoint, metrics_port=metrics_port, contract=contract[:12])
            server.run(stop)
            log.info("stopped", version=store.visible.version if store.visible is not None else None)
    finally:
        telemetry.close()
        context.term()


def _printable(peer: bytes) -> str:
    return peer.decode("ascii", "backslashreplace")[:64]
