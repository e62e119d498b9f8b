"""The inference process around handler and engine: one thread, one ROUTER, sockets to the parameter server, metrics, signals."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import numpy as np
import torch

from herd.acting.policy import parse_device, precision_of
from herd.agent import build_agent
from herd.config.run_contract import run_layout
from herd.protocols.inference import metrics as names
from herd.protocols.inference.messages import INFERENCE
from herd.protocols.inference.rows import ActingLayout
from herd.rpc.codec import encode
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.service.inbox import POLL_SECONDS, RequestInbox, ServerMeters, open_router, serve
from herd.service.process import ServiceProcess
from herd_inference.engine import Engine
from herd_inference.exchange import ActingHandler
from herd_inference.sessions import Batches, Sessions
from herd_inference.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.config.run import RunSettings
    from herd.rpc.serving import Received, Reply, ServedRun
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest
    from herd.telemetry import Telemetry
    from herd.transport import Client, Server
    from herd.transport.context import Refusals
    from herd_inference.engine import Acting
    from herd_inference.exchange import Decision
    from herd_inference.sessions import Request

ANSWERS_PER_PEER = 4
"""Limit of unread requests: a client has one request under way, and repeats it after seconds."""
POLL_RESOLUTION_SECONDS = 0.001
"""Resolution of the poller. A batch that is due within half of it starts at once; otherwise the loop would spin until then."""
READ_AT_ONCE = 64
"""Number of requests that are read before the loop checks whether a batch is due."""


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
        """Export the number of evicted environments."""
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


class InferenceServer:
    """Receives requests, acts on them in batches, and answers."""

    def __init__(
        self,
        router: Server,
        handler: ActingHandler,
        *,
        served: ServedRun,
        batches: Batches,
        engine: Engine,
        weights: Weights,
        meters: Meters,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._handler = handler
        self._batches = batches
        self._engine = engine
        self._weights = weights
        self._meters = meters
        self._telemetry = telemetry
        self._clock = clock
        self._inbox = RequestInbox(router, INFERENCE, served, self._take, meters, max_burst=READ_AT_ONCE)
        self._acting: Acting | None = None
        self._began_at = 0.0

    def run(self, stop: StopRequest) -> None:
        """Serve until ``stop``. Requests under way are lost; clients repeat them to the next process."""
        serve(stop, self._telemetry, [self._router, *self._weights.sockets], self.turn, self._rest_seconds)

    def turn(self) -> None:
        """Do all work that is possible now. Waits only for the device."""
        self._follow_weights()
        self._inbox.serve_waiting()
        if self._acting is not None:
            self._answer(self._acting)
        if requests := self._batches.next(self._clock() + POLL_RESOLUTION_SECONDS / 2):
            self._began_at = self._clock()
            self._meters.begun(requests, self._began_at)
            self._acting = self._engine.submit(requests)
            if self._acting.done is None:
                self._answer(self._acting)
        self._meters.waiting(len(self._batches))

    def _rest_seconds(self) -> float:
        """Seconds until a batch is due. A batch on a GPU is collected at the next turn, after newly arrived requests are read."""
        if self._acting is not None:
            return 0.0
        weights = self._weights.rest_seconds + POLL_RESOLUTION_SECONDS / 2
        return max(0.0, min(POLL_SECONDS, weights, self._batches.due_at() - self._clock()))

    def _follow_weights(self) -> None:
        for agent in self._weights.poll():
            self._batches.may_act(agent)
            version = self._weights.versions[agent]
            assert version is not None
            self._telemetry.set_weights_version(*version)
            missing = [str(number) for number, version in enumerate(self._weights.versions) if version is None]
            self._telemetry.set_ready(not missing, f"no weights of agents {', '.join(missing)} yet" if missing else "")

    def _take(self, received: Received) -> Reply:
        decision = self._handler.take(received, self._clock())
        self._meters.decided(decision)
        return decision

    def _answer(self, acting: Acting) -> None:
        self._acting = None
        num_environments = 0
        for request, arrays in self._engine.collect(acting):
            num_environments += request.session.num_environments
            if request.is_wanted:
                reply = self._handler.answer(request, arrays, acting.version)
                assert reply.message is not None
                self._router.send(request.session.peer, [*encode(reply.message), *reply.payloads])
        self._meters.acted(num_environments, self._clock() - self._began_at)


def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: a task is unknown, there is no GPU, or an address cannot be used.

    """
    if stop:
        return  # the request came while torch was imported: nothing was started
    own = settings.inference
    torch.set_num_threads(own.threads)
    with ServiceProcess("inference", settings, identity) as process, ExitStack() as sockets:
        device = parse_device(own.device, "inference.device")
        layout = ActingLayout(run_layout(settings, process.spec))
        meters = Meters(process.telemetry)
        batches = Batches(settings.agents, batch_size=own.batch_size, deadline_seconds=own.deadline_milliseconds / 1000)
        sessions = Sessions(own.max_environments, batches.discard)
        max_request = settings.actor.environments
        precision = precision_of(own.precision, device)
        # A restarted service must not repeat the random numbers of its predecessor.
        entropy = [settings.seed, identity.number, secrets.randbits(63)]
        engine = Engine(
            build_agent(settings, process.spec),
            layout,
            num_agents=settings.agents,
            num_places=own.max_environments,
            max_batch=max(own.batch_size, max_request),
            device=device,
            precision=precision,
            seed=int(np.random.SeedSequence(entropy).generate_state(1)[0]),
        )
        handler = ActingHandler(
            max_request=max_request,
            layout=layout,
            sessions=sessions,
            batches=batches,
        )
        request_bytes = layout.max_frame_bytes(max_request)
        router = open_router(
            process.context,
            identity,
            max_frame_bytes=max(MAX_HEADER_BYTES, request_bytes),
            high_water_mark=ANSWERS_PER_PEER,
            # After a restart of this process, every client has one request under way that contains stacks and states.
            unread_bytes_each=request_bytes,
        )
        sockets.enter_context(router)
        weights = Weights(process, engine.load)
        sockets.enter_context(closing(weights))
        meters.watch_wire(router, weights.sockets, process.context.refusals)
        meters.watch_sessions(sessions)
        process.serve_metrics()
        process.telemetry.set_ready(False, "no weights yet")
        process.announce("listening", endpoint=router.endpoint, device=str(device), precision=str(precision).removeprefix("torch."))
        served = process.served_run("--inference")
        InferenceServer(
            router, handler, served=served, batches=batches, engine=engine, weights=weights, meters=meters, telemetry=process.telemetry
        ).run(stop)
        process.log.info("stopped")
