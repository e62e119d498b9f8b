"""Serving from one ROUTER, and the metrics of every process that does.

Messages come in bounded bursts; one that breaks the protocol is dropped, counted, and logged once a minute.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from herd.config.addresses import tcp_address
from herd.rpc.codec import MalformedMessage, encode, printable
from herd.rpc.envelope import Refused
from herd.rpc.serving import Received, Reply, RequestRefused, read
from herd.service.allocator import FreeMemory
from herd.service.startup import BadInputError
from herd.telemetry import metrics as names
from herd.telemetry.logs import warn_limited
from herd.transport import Limits, Peer, Server
from herd.transport.context import Poller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.rpc.codec import Conversation
    from herd.rpc.serving import ServedRun
    from herd.service.identity import Identity
    from herd.service.process import ServiceProcess
    from herd.service.signals import StopRequest
    from herd.telemetry import Telemetry
    from herd.transport import Client
    from herd.transport.context import Context, Refusals

POLL_SECONDS = 0.2
"""How late a signal, or something that is due, may be noticed; idle, it costs five wake-ups a second."""
MAX_BURST = 256
"""Messages served before the clock and the signals are looked at again."""
MAX_BURST_SECONDS = 0.5
"""And the time taken over them: checking the digest of a slice of weights takes a second per gigabyte."""


def open_router(context: Context, identity: Identity, *, max_frame_bytes: int, **limits: int) -> Server:
    """Bind where the process listens; ``limits`` are those of `Router`.

    Raises:
        BadInputError: the address cannot be used.

    """
    listen = identity.listen
    try:
        return context.server(tcp_address(listen.host, listen.port or "*"), Limits(max_frame_bytes=max_frame_bytes, **limits))
    except OSError as error:
        raise BadInputError(f"--listen {listen}: {error.strerror}") from error


class ServerMeters:
    """The metrics that all services share; each service adds its own."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        for metric in (names.MALFORMED_MESSAGES, names.REFUSED_MESSAGES):
            if telemetry.service in metric.services:
                telemetry.counter(metric, reason="other")  # all reasons start at 0, so that the first one is seen as an increase

    def watch_clients(self, router: Server, refusals: Refusals) -> None:
        """Export open, closed and failed connections."""
        read, connections = self._telemetry.read, router.connections
        read(names.CONNECTIONS, lambda: float(len(connections)))
        for cause in names.CONNECTIONS_CUT_BY:
            read(names.CONNECTIONS_CUT, partial(connections.num_cut.__getitem__, cause), cause=cause)
        for reason in names.AUTHENTICATION_FAILURES_BY:
            read(names.AUTHENTICATION_FAILURES, partial(refusals.count, reason), reason=reason)

    def watch_bytes(self, stream: str, *sockets: Server | Client) -> None:
        """Export the traffic of all ``sockets``; ``stream``: one of ``names.STREAMS``."""
        self._telemetry.read(names.BYTES_IN, lambda: float(sum(one.bytes_in for one in sockets)), stream=stream)
        self._telemetry.read(names.BYTES_OUT, lambda: float(sum(one.bytes_out for one in sockets)), stream=stream)

    def watch_requests(self, router: Server, refusals: Refusals) -> None:
        """Export connections and traffic of a socket that carries requests and answers."""
        self.watch_clients(router, refusals)
        self._telemetry.read(names.REQUEST_BYTES, lambda: float(router.bytes_in))
        self._telemetry.read(names.ANSWER_BYTES, lambda: float(router.bytes_out))

    def malformed(self, label: str, number: int = 1) -> None:
        """Count messages that were dropped unread."""
        self._telemetry.counter(names.MALFORMED_MESSAGES, reason=label).inc(number)

    def refused(self, label: str) -> None:
        """Count a readable message that was refused."""
        self._telemetry.counter(names.REFUSED_MESSAGES, reason=label).inc()


class Inbox:
    """Hands the messages of one ROUTER to ``handle``. Belongs to the socket's thread."""

    def __init__(
        self,
        router: Server,
        handle: Callable[[Peer, Sequence[memoryview]], bool | None],
        meters: ServerMeters,
        *,
        max_burst: int = MAX_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``handle`` takes a peer and at least one frame, and raises ``MalformedMessage`` for what it drops.

        Unless it returns False, because the sender was refused, the sender keeps its connection also where others are too many.
        """
        self._router = router
        self._handle = handle
        self._meters = meters
        self._max_burst = max_burst
        self._clock = clock

    def serve_waiting(self) -> None:
        """Serve what has arrived, at most a burst of it; never waits."""
        until = self._clock() + MAX_BURST_SECONDS
        for _ in range(self._max_burst):
            received = self._router.receive()
            if received is None:
                return
            peer, frames = received
            try:
                if self._handle(peer, frames) is not False:
                    self._router.trust(peer)
            except MalformedMessage as error:
                self._meters.malformed(error.label)
                warn_limited(f"malformed {error.label}", "dropped a malformed message", reason=error.reason, peer=_shown(peer))
            except Exception:  # an error of this program in one message must not end the service: its client may repeat it
                self._meters.malformed("other")
                warn_failed(peer)
            if self._clock() >= until:
                return


class RequestInbox(Inbox):
    """Hands each request that passes the checks of `herd.rpc.serving.read` to ``answer``, and sends the reply."""

    def __init__(
        self,
        router: Server,
        conversation: Conversation,
        run: ServedRun,
        answer: Callable[[Received], Reply | None],
        meters: ServerMeters,
        *,
        max_burst: int = MAX_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``answer`` raises ``MalformedMessage`` for what it drops, and ``RequestRefused``; None: somebody else answers."""
        super().__init__(router, self._reply, meters, max_burst=max_burst, clock=clock)
        self._conversation = conversation
        self._run = run
        self._answer = answer

    def _reply(self, peer: Peer, frames: Sequence[memoryview]) -> bool:
        try:
            message = read(self._conversation, self._run, peer, frames)
            try:
                reply = self._answer(Received(peer, message, frames[1:]))
            except (MalformedMessage, RequestRefused):
                raise
            except Exception:  # as in `serve_waiting`, with an answer
                warn_failed(peer)
                reply = Reply(Refused(id=message.id, reason="the request failed here: see the error in this server's log"))
        except RequestRefused as error:
            reply = error.reply
        if reply is None:
            return True
        is_refused = isinstance(reply.message, Refused)
        if isinstance(reply.message, Refused):
            self._meters.refused(reply.label)
            warn_refused(reply.label, reply.message.reason, peer)
        if reply.message is not None:
            # False: the client has disconnected or does not read; it repeats its request.
            self._router.send(peer, [*encode(reply.message), *reply.payloads])
        if reply.malformed is not None:
            raise reply.malformed
        return not is_refused


def serve_requests(
    process: ServiceProcess,
    inbox: RequestInbox,
    router: Server,
    meters: ServerMeters,
    stop: StopRequest,
    *,
    tick: Callable[[], None] = lambda: None,
    **facts: object,
) -> None:
    """Announce the process with ``facts``, then answer requests until ``stop``, and those that arrived before it.

    ``tick`` is called a few times per second.

    Raises:
        BadInputError: the metrics port cannot be bound.

    """

    def turn() -> None:
        inbox.serve_waiting()
        tick()

    meters.watch_requests(router, process.context.refusals)
    process.serve_metrics()
    process.telemetry.set_ready(True)
    process.announce("listening", endpoint=router.endpoint, **facts)
    serve(stop, process.telemetry, [router], turn)
    inbox.serve_waiting()


def warn_refused(kind: str, reason: str, peer: Peer) -> None:
    """Log that a client was refused, at most once a minute per ``kind``, which comes from a closed set."""
    warn_limited(f"refused {kind}", "refused a client", reason=reason, peer=_shown(peer))


def serve(
    stop: StopRequest,
    telemetry: Telemetry,
    sockets: Sequence[Server | Client],
    turn: Callable[[], None],
    rest_seconds: Callable[[], float] = lambda: POLL_SECONDS,
) -> None:
    """Run the main loop of a server until ``stop``: wait until a socket can be read or a time has passed, then do what is due."""
    poller, free_memory = Poller(*sockets), FreeMemory()
    while not stop:
        poller.poll(rest_seconds())
        turn()
        free_memory.tick()
        telemetry.beat()
    telemetry.set_ready(False, "stopping")


def warn_failed(peer: Peer) -> None:
    """Log the error that is being handled, with its traceback."""
    warn_limited("failed request", "an error of this program: a message could not be processed", peer=_shown(peer), exc_info=True)


def _shown(peer: Peer) -> str:
    return printable(str(peer), 64)
