"""What a metric is, and the metrics that every process, every server or every holder of weights exports.

Every other metric is defined once, beside the messages of its conversation (``herd/protocols/<conversation>/metrics.py``) or in
``training.py``. ``docs/metrics.md`` lists all of them.

Prometheus adds ``job`` and ``instance`` to what it scrapes, so no metric is labelled by pod, actor or host: thousands of
actors stay scrapeable at about 30 series each (9 more where a service acts for them), and series per task come from learner, bandit and
evaluator alone. Every label but ``task`` (bounded by ``env.tasks``), ``layer`` (by the network's), ``term`` and ``name`` (by the 32
numbers that a loss may name), ``agent`` (by ``agents``), ``setting`` (by ``sweep``), ``statistic`` (six), ``tile`` (by
``bandit.tile_accuracy``) and those of ``herd_process_info`` takes its values from a closed set, kept beside the metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.topology import LEARNER, PARAMSERVER, SERVERS, SERVICE_NAMES, SERVICES

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    unit: str
    help: str
    services: tuple[ServiceName, ...]
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The closed set of the single label's values; empty if the label is open. With ``other`` in it, unknown values count as that."""
    counts_work: bool = False
    """Whether it increases while a process of its only service makes progress."""


@dataclass(frozen=True, slots=True)
class CounterMetric(Metric):
    """Only increases; starts at 0 with the process."""


@dataclass(frozen=True, slots=True)
class GaugeMetric(Metric):
    """A present value."""


@dataclass(frozen=True, slots=True)
class HistogramMetric(Metric):
    """A distribution: one series per bucket, one for the sum, one for the count."""

    buckets: tuple[float, ...] = ()


class Exporters:
    """Services that export the same metrics; defines these."""

    def __init__(self, *services: ServiceName) -> None:
        self.services = services

    def counter(
        self,
        name: str,
        unit: str,
        meaning: str,
        *,
        labels: tuple[str, ...] = (),
        values: tuple[str, ...] = (),
        counts_work: bool = False,
    ) -> CounterMetric:
        """Define a counter."""
        return CounterMetric(name, unit, meaning, self.services, labels, values, counts_work)

    def gauge(self, name: str, unit: str, meaning: str, *, labels: tuple[str, ...] = ()) -> GaugeMetric:
        """Define a gauge."""
        return GaugeMetric(name, unit, meaning, self.services, labels)

    def histogram(self, name: str, unit: str, meaning: str, *, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> HistogramMetric:
        """Define a histogram."""
        return HistogramMetric(name, unit, meaning, self.services, labels, buckets=buckets)


EVERY_SERVICE: tuple[ServiceName, ...] = SERVICE_NAMES
MOVE_WEIGHTS: tuple[ServiceName, ...] = tuple(service.name for service in SERVICES if service.moves_weights)
_all = Exporters(*EVERY_SERVICE)
_weights = Exporters(*MOVE_WEIGHTS)
_servers = Exporters(*(service.name for service in SERVERS))  # bind a socket that other processes connect to
# Sockets that carry neither of the `STREAMS`.
_requests = Exporters(*(service.name for service in SERVERS if service not in {LEARNER, PARAMSERVER}))

PROCESS_INFO = _all.gauge(
    "herd_process_info", "1", "Always 1; its labels say which service of which run this is.", labels=("service", "run", "version")
)
PROCESS_RESIDENT_MEMORY = _all.gauge("herd_process_resident_memory_bytes", "bytes", "Resident memory of the process.")
PROCESS_CPU = _all.counter("herd_process_cpu_seconds_total", "seconds", "Processor time, user and system, over all threads.")
HEARTBEAT_AGE = _all.gauge(
    "herd_process_heartbeat_age_ratio",
    "1",
    "Time since the last turn of the main loop, as a share of the limit of /healthz, which fails above 1. The limit is 60 s, and longer in"
    " processes whose environments may take longer to load.",
)

STREAMS = ("unrolls", "weights")
"""The two conversations on the wire."""
BYTES_IN = _weights.counter(
    "herd_wire_received_bytes_total",
    "bytes",
    "Bytes received, including headers, without ZeroMQ's framing.",
    labels=("stream",),
    values=STREAMS,
)
BYTES_OUT = _weights.counter(
    "herd_wire_sent_bytes_total", "bytes", "Bytes sent, including headers, without ZeroMQ's framing.", labels=("stream",), values=STREAMS
)
REQUEST_BYTES = _requests.counter(
    "herd_wire_request_bytes_total", "bytes", "Bytes of requests received, including headers, without ZeroMQ's framing."
)
ANSWER_BYTES = _requests.counter(
    "herd_wire_answer_bytes_total", "bytes", "Bytes of answers sent, including headers, without ZeroMQ's framing."
)

MALFORMED_REASONS = ("header", "protocol", "array", "size", "compression", "digest", "unexpected", "other")
"""Reasons for dropping a message unread."""
MALFORMED_MESSAGES = _all.counter(
    "herd_wire_malformed_messages_total",
    "messages",
    "Messages dropped because they could not be read, by cause.",
    labels=("reason",),
    values=MALFORMED_REASONS,
)

RESTART_REASONS = ("session", "sequence", "credit", "duplicate")
"""Reasons that are normal after a restart or a broken connection."""
REFUSAL_REASONS = ("protocol", "run", "agent", "contract", "size", "full", *RESTART_REASONS, "ahead", "other")
"""Reasons for refusing a readable message."""
REFUSED_MESSAGES = _servers.counter(
    "herd_wire_refused_messages_total",
    "messages",
    "Messages that could be read and were refused, by reason. docs/runbook.md, HerdMessagesRefused, explains the reasons.",
    labels=("reason",),
    values=REFUSAL_REASONS,
)
CONNECTIONS = _servers.gauge("herd_wire_connections", "connections", "Connections to this server's socket, including half-open ones.")

CONNECTIONS_CUT_BY = ("too_many", "unread")
"""Reasons for closing a connection: too many at once, or too many unread bytes."""
CONNECTIONS_CUT = _servers.counter(
    "herd_wire_connections_cut_total",
    "connections",
    "Connections that this server closed: there were too many, or one had sent more bytes than the server can have read.",
    labels=("cause",),
    values=CONNECTIONS_CUT_BY,
)

AUTHENTICATION_FAILURES_BY = ("unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol")
"""``unknown_key``: the client is not on the list. ``revoked``: a message from a client removed from the list. ``wrong_server_key``: the
client trusts another server. ``mechanism``: one side uses CURVE and the other does not. ``incomplete``: the connection ended during the
handshake, as with port scans and TCP probes. ``protocol``: not a valid handshake. See docs/runbook.md, HerdAuthenticationFailures."""
AUTHENTICATION_FAILURES = _servers.counter(
    "herd_wire_authentication_failures_total",
    "failures",
    "Failed handshakes with this server, and messages of clients whose key was revoked, by reason.",
    labels=("reason",),
    values=AUTHENTICATION_FAILURES_BY,
)
WEIGHTS_LINEAGE = _weights.gauge(
    "herd_weights_lineage", "lineage", "Lineage of the current weights. A restored checkpoint opens a new lineage."
)
WEIGHTS_UPDATES = _weights.gauge(
    "herd_weights_updates", "updates", "Learner updates of the current weights (learner: of those last published)."
)
WEIGHTS_AGE = _weights.gauge(
    "herd_weights_age_seconds",
    "seconds",
    "Seconds since the current weights arrived (learner: since they were published). NaN before the first.",
)
