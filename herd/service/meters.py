"""Metrics of every process with a server socket: connections, traffic, dropped and refused messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from herd.telemetry import metrics as names

if TYPE_CHECKING:
    from herd.telemetry import Telemetry
    from herd.transport import Client, Server
    from herd.transport.refusals import Refusals


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
            read(names.CONNECTIONS_CUT, partial(connections.count_cut, cause), cause=cause)
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
