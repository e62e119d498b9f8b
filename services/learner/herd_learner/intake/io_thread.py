"""The learner's I/O thread: the only owner of its sockets. It receives unrolls and sends weights while the other thread trains."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from herd.config.addresses import tcp_address
from herd.protocols.unrolls import metrics as names
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.weights.client import WeightsPublisher
from herd.rpc.codec import encode
from herd.rpc.serving import ServedRun
from herd.service.inbox import Inbox, ServerMeters
from herd.telemetry.logs import get_logger, warn_limited
from herd.telemetry.metrics import RESTART_REASONS
from herd.transport import Limits, Peer
from herd.transport.context import Poller, Waker
from herd_learner.intake.ingest import Ingest, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec
    from herd.contract.unroll import UnrollLayout
    from herd.protocols.population.client import PopulationClient
    from herd.protocols.unrolls.messages import EpisodeReport
    from herd.service.identity import Identity
    from herd.telemetry.telemetry import Telemetry
    from herd.transport.context import Context
    from herd_learner.intake.ledger import Ledger
    from herd_learner.intake.queue import UnrollQueue

END_SECONDS = 2.0
"""Time at the end of this agent's run for the parameter server to note it and send its actors to other agents. Otherwise it notices the end
after a minute of silence."""
FAREWELL_SECONDS = 5.0
"""Time for actors to be told of the end of the run and to leave, even with a slow step on a busy machine. They are told every tick."""
TICK_SECONDS = 0.25
"""Longest sleep; bounds the delay of heartbeats and of the detection of silent peers."""
MESSAGES_PER_TURN = 64
"""Maximum number of messages read before weights and credit are sent."""


class IntakeMeters(ServerMeters):
    """The training thread also counts here the unrolls that it drops from the queue."""

    def __init__(self, telemetry: Telemetry, ledger: Ledger, queue: UnrollQueue) -> None:
        super().__init__(telemetry)
        telemetry.read(names.FRAMES_GENERATED, lambda: float(ledger.generated_since_start()))
        telemetry.read(names.FRAMES_IN_FLIGHT, lambda: float(ledger.totals().in_flight))
        for reason in names.DROP_REASONS:
            telemetry.read(names.FRAMES_DROPPED, partial(ledger.dropped_since_start, reason), reason=reason)
        telemetry.read(names.QUEUE_DEPTH, lambda: float(len(queue)))
        telemetry.counter(names.UNROLLS_DROPPED, reason="other")  # all reasons start at 0, so that the first one is seen as an increase

    def watch_credit(self, credit: CreditPool) -> None:
        """Export the credit pool's state."""
        self._telemetry.gauge(names.QUEUE_CAPACITY).set(credit.capacity)
        self._telemetry.read(names.CONNECTED_ACTORS, lambda: float(credit.num_peers))

    def received(self, num_unrolls: int, dropped_as: str | None) -> None:
        """Count the unrolls of one message, if they were dropped instead of queued."""
        if dropped_as is not None:
            self.dropped(num_unrolls, dropped_as)

    def dropped(self, num_unrolls: int, reason: str) -> None:
        """Count unrolls that will never be trained on."""
        self._telemetry.counter(names.UNROLLS_DROPPED, reason=reason).inc(num_unrolls)


class IoThread:
    """Owns the sockets. Usage: start it, pass it weights and consumed unrolls, close it."""

    def __init__(
        self,
        context: Context,
        settings: RunSettings,
        identity: Identity,
        *,
        contract: str,
        layout: UnrollLayout,
        spec: EnvSpec,
        ledger: Ledger,
        queue: UnrollQueue,
        meters: IntakeMeters,
        shard: tuple[int, int] = (0, 1),
        population: PopulationClient | None = None,
    ) -> None:
        """Bind the unroll socket; ``shard`` says which slice this learner publishes; ``population`` is polled and closed here.

        Raises:
            AddressInUse: another process has the port.
        """
        agent, learner = identity.agent or 0, settings.learner
        capacity = settings.credit_capacity
        self._router = context.server(tcp_address(*identity.listen), Limits(max_frame_bytes=layout.max_frame_bytes(capacity)))
        self._publisher = WeightsPublisher(context, identity.address("paramserver"), run_id=settings.name, agent=agent, contract=contract)
        self._shard = shard
        self._population = population
        self._waker = Waker()
        self._meters = meters
        self._credit = CreditPool(capacity, expires_seconds=learner.credit_expires_seconds)
        meters.watch_credit(self._credit)
        meters.watch_clients(self._router, context.refusals)
        meters.watch_bytes("unrolls", self._router)
        meters.watch_bytes("weights", self._publisher.socket)
        self.episodes: deque[tuple[EpisodeReport, float | None]] = deque()
        """Finished games with their 1/tau; the training thread takes them from the left."""
        self._ingest = Ingest(
            run=ServedRun("--learner", settings.name, contract, range(agent, agent + 1)),
            layout=layout,
            action_repeat=spec.action_repeat,
            ledger=ledger,
            queue=queue,
            credit=self._credit,
            on_episode=lambda episode, inverse_temperature: self.episodes.append((episode, inverse_temperature)),
            on_unrolls=meters.received,
            on_refused=self._on_refused,
        )
        self._inbox = Inbox(self._router, self._on_message, meters, max_burst=MESSAGES_PER_TURN)
        self._answers: list[Reply] = []
        self._mailbox = threading.Lock()
        self._num_consumed = 0
        self._num_handed_over = self._num_published = 0
        self._weights: tuple[int, int, int, bytes] | None = None
        self._ended_lineage: int | None = None
        self._end_noted = threading.Event()
        self._dismisses = False
        self._dismiss_at = 0.0
        self._all_left = threading.Event()
        self._log = get_logger()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="learner-io", daemon=True)
        self.failure: BaseException | None = None
        """The error that ended the thread; None if `close` did."""

    @property
    def newer_lineage(self) -> int | None:
        """The parameter server's lineage if it is newer than ours, else None."""
        return self._publisher.newer_lineage

    @property
    def is_published(self) -> bool:
        """Whether the newest version is done: the parameter server has it, or will never accept it."""
        return self._num_published == self._num_handed_over and (self._publisher.confirmed or self._publisher.superseded)

    def start(self) -> None:
        """Start receiving."""
        self._thread.start()

    def publish(self, lineage: int, updates: int, payload: bytes) -> None:
        """Set the version to publish; it replaces one not yet sent."""
        with self._mailbox:
            self._num_handed_over += 1
            self._weights = (self._num_handed_over, lineage, updates, payload)
        self._waker.wake()

    def grant_again(self, num_unrolls: int) -> None:
        """Note that unrolls have left the queue, so that their credit is granted again."""
        with self._mailbox:
            self._num_consumed += num_unrolls
        self._waker.wake()

    def end_agent(self, lineage: int) -> None:
        """Tell the parameter server that this agent's run is over as of ``lineage``; wait at most ``END_SECONDS`` for confirmation."""
        self._ended_lineage = lineage
        self._waker.wake()
        if not self._end_noted.wait(END_SECONDS):
            self._log.warning("the parameter server did not confirm the end of this agent")

    def dismiss_actors(self) -> None:
        """Tell actors that the run is over; wait at most ``FAREWELL_SECONDS`` for them to leave."""
        self._dismisses = True
        self._waker.wake()
        self._all_left.wait(FAREWELL_SECONDS)

    def close(self) -> None:
        """Stop and close the sockets; closing again does nothing."""
        if self._stopping:
            return
        self._stopping = True
        self._waker.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._router.close()
        self._publisher.close()
        if self._population is not None:
            self._population.close()
        self._waker.close()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.failure = error

    def _loop(self) -> None:
        poller = Poller(self._router, self._publisher.socket, self._waker)
        if self._population is not None:
            poller.register(self._population.socket)
        expire_at = 0.0
        while not self._stopping:
            poller.poll(TICK_SECONDS)
            self._waker.clear()
            self._empty_mailbox()
            self._serve_waiting()
            if self._dismisses:
                self._dismiss()
            if self._ended_lineage is not None and not self._publisher.has_ended:
                self._publisher.end(self._ended_lineage)
            self._publisher.poll()
            if self._population is not None:
                self._population.poll()
                if self._population.refused is not None:
                    warn_limited("report refused", "the population refuses reports of this learner", reason=self._population.refused)
            if self._publisher.end_is_noted:
                self._end_noted.set()
            if self._publisher.refused is not None:
                warn_limited("publication refused", "the parameter server refuses weights of this learner", reason=self._publisher.refused)
            now = time.monotonic()
            if now >= expire_at:
                expire_at = now + 1.0
                for peer in self._router.departures():
                    self._ingest.on_departed(peer, now)
                self._send(self._ingest.expire(now))

    def _dismiss(self) -> None:
        farewell = self._ingest.farewell()
        if not farewell:
            self._all_left.set()
        elif time.monotonic() >= self._dismiss_at:
            self._dismiss_at = time.monotonic() + TICK_SECONDS
            self._send(farewell)

    def _empty_mailbox(self) -> None:
        with self._mailbox:
            num_consumed, self._num_consumed = self._num_consumed, 0
            weights, self._weights = self._weights, None
        if num_consumed:
            self._send(self._ingest.on_consumed(num_consumed))
        if weights is not None:
            number, lineage, updates, payload = weights
            self._publisher.publish(lineage, updates, *self._shard, payload)
            self._num_published = number

    def _serve_waiting(self) -> None:
        """Read the waiting messages, then answer all of them: consecutive answers wake ZeroMQ's thread only once."""
        self._inbox.serve_waiting()
        answers, self._answers = self._answers, []
        self._send(answers)

    def _on_message(self, peer: Peer, frames: Sequence[memoryview]) -> bool:
        self._answers += self._ingest.on_message(peer, frames, time.monotonic())
        return self._ingest.has_session(peer)

    def _on_refused(self, reason: str) -> None:
        self._meters.refused(reason)
        if reason not in RESTART_REASONS:
            warn_limited(f"refused {reason}", "refused an actor: its log says why", reason=reason)

    def _send(self, replies: list[Reply]) -> None:
        for reply in replies:
            # A peer that does not read loses the answer; it asks again when it reconnects.
            self._router.send(reply.peer, encode(reply.message))
