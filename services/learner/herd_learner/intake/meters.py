"""Metrics of what actors send, from the I/O thread; the queue and the ledger are read when they are scraped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from herd.protocols.unrolls import metrics as names
from herd.service.serving import ServerMeters

if TYPE_CHECKING:
    from herd.protocols.unrolls.credit import CreditPool
    from herd.telemetry.telemetry import Telemetry
    from herd_learner.intake.ledger import Ledger
    from herd_learner.intake.queue import UnrollQueue


class IntakeMeters(ServerMeters):
    """The training thread also counts here the unrolls that it drops from the queue."""

    def __init__(self, telemetry: Telemetry, ledger: Ledger, queue: UnrollQueue) -> None:
        super().__init__(telemetry)
        self._received = telemetry.counter(names.UNROLLS_RECEIVED)
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
        """Record that the unrolls of one message entered the queue, or were dropped."""
        if dropped_as is None:
            self._received.inc(num_unrolls)
        else:
            self.dropped(num_unrolls, dropped_as)

    def dropped(self, num_unrolls: int, reason: str) -> None:
        """Count unrolls that will never be trained on."""
        self._telemetry.counter(names.UNROLLS_DROPPED, reason=reason).inc(num_unrolls)
