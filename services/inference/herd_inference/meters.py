"""The inference service's metrics. Instruments are looked up once; stored amounts are read at each scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.inference import metrics as names
from herd.service.meters import ServerMeters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.telemetry import Telemetry
    from herd.transport import Client, Server
    from herd.transport.refusals import Refusals
    from herd_inference.exchange import Decision
    from herd_inference.sessions import Request, Sessions


class Meters(ServerMeters):
    """The metrics of the inference service."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._requests = {outcome: telemetry.counter(names.INFERENCE_REQUESTS, outcome=outcome) for outcome in names.ACTING_OUTCOMES}
        self._steps = telemetry.counter(names.INFERENCE_STEPS)
        self._batch = telemetry.histogram(names.INFERENCE_BATCH)
        self._wait = telemetry.histogram(names.INFERENCE_WAIT)
        self._compute = telemetry.counter(names.INFERENCE_COMPUTE)
        self._pending = telemetry.gauge(names.INFERENCE_PENDING)

    def watch_wire(self, router: Server, weights: Sequence[Client], refusals: Refusals) -> None:
        """Export connections and traffic of all sockets."""
        self.watch_requests(router, refusals)
        self.watch_bytes("weights", *weights)

    def watch_sessions(self, sessions: Sessions) -> None:
        """Export the number of known environments and of evicted ones."""
        self._telemetry.read(names.INFERENCE_ENVIRONMENTS, lambda: float(sessions.num_environments))
        self._telemetry.read(names.INFERENCE_EVICTED, lambda: float(sessions.num_evicted))

    def decided(self, decision: Decision) -> None:
        """Count a request."""
        self._requests[decision.outcome].inc()

    def waiting(self, num_requests: int) -> None:
        """Set the number of unanswered requests."""
        self._pending.set(num_requests)

    def begun(self, requests: Sequence[Request], now: float) -> None:
        """Record a batch and the waits of its requests."""
        self._batch.observe(sum(request.session.num_environments for request in requests))
        for request in requests:
            self._wait.observe(now - request.arrived_at)

    def acted(self, num_environments: int, seconds: float) -> None:
        """Count an answered batch."""
        self._steps.inc(num_environments)
        self._compute.inc(seconds)
