"""One process's metrics, heartbeat and readiness, served over HTTP."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from herd.telemetry import metrics as names
from herd.telemetry.http_endpoint import HttpEndpoint, Reply
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from herd.config.addresses import ServiceName

# A `_created` series for every counter would double an actor's series, and Prometheus does not need it.
disable_created_metrics()  # type: ignore[no-untyped-call]

DEFAULT_ALIVE_SECONDS = 60.0
"""Ten times the longest normal pause of a main loop, which is a first update with a cold torch or a checkpoint on a slow disk."""

RUN_IS_OVER = "the run is over"
"""Answer of ``/readyz`` of a learner whose run is over."""
COPY_IS_INCOMPLETE = "its copy is not complete"
"""Follows in that answer if the last copy to object storage failed."""

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)
Labels = tuple[str, ...]


class Telemetry:
    """The metrics of one process, from the catalogue.

    Look up an instrument once, outside the hot loop. Its ``inc``, ``set`` and ``observe`` take about a microsecond and may be called from
    any thread. A metric that does not belong to this service is a ``ValueError``, which keeps actors within their number of series.

    ``service``: the exporting service. ``run``: name of the run. ``alive_seconds``: age of the last ``beat()`` at which ``/healthz`` fails.
    """

    def __init__(
        self,
        service: ServiceName,
        run: str,
        *,
        alive_seconds: float = DEFAULT_ALIVE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service: ServiceName = service
        self._alive_seconds = alive_seconds
        self._clock = clock
        self._registry = CollectorRegistry()
        self._instruments: dict[str, Counter | Gauge | Histogram] = {}
        self._readings = _Readings()
        self._registry.register(self._readings)
        self._lock = threading.Lock()
        self._endpoint: HttpEndpoint | None = None
        self._last_beat = clock()
        self._ready = False
        self._readiness = "starting"
        self._warning = ""
        self._weights_at: float | None = None
        self._export_process(run)

    def counter(self, metric: names.CounterMetric, **labels: str) -> Counter:
        """Return the counter with these label values: the same one at every call."""
        return self._instrument(Counter, metric, labels)

    def gauge(self, metric: names.GaugeMetric, **labels: str) -> Gauge:
        """Return the gauge with these label values."""
        return self._instrument(Gauge, metric, labels)

    def histogram(self, metric: names.HistogramMetric, **labels: str) -> Histogram:
        """Return the histogram with these label values."""
        return self._instrument(Histogram, metric, labels)

    def read(self, metric: names.CounterMetric | names.GaugeMetric, function: Callable[[], float], **labels: str) -> None:
        """Call ``function`` at every scrape, from the HTTP thread, instead of setting the metric. For totals that are stored elsewhere.

        The function must be fast and thread-safe. For a counter it must never decrease.
        """
        values = self._label_values(metric, labels)
        self._readings.add(metric, values, function)

    def set_weights_version(self, lineage: int, updates: int) -> None:
        """Export the version of the current weights (learner: just published). Their age counts from this call."""
        self._weights_at = self._clock()
        self.gauge(names.WEIGHTS_LINEAGE).set(lineage)
        self.gauge(names.WEIGHTS_UPDATES).set(updates)

    def beat(self) -> None:
        """Record a turn of the main loop. Costs one read of the clock."""
        self._last_beat = self._clock()

    @property
    def heartbeat_age_seconds(self) -> float:
        """Seconds since the last ``beat()``, or since construction."""
        return self._clock() - self._last_beat

    def alive(self) -> bool:
        """Whether the last ``beat()`` is recent enough, which ``/healthz`` answers."""
        return self.heartbeat_age_seconds <= self._alive_seconds

    def set_ready(self, ready: bool, reason: str = "") -> None:
        """Set the answer of ``/readyz``. ``reason`` tells the operator what is missing, or gives further information."""
        self._readiness = reason
        self._ready = ready

    def set_warning(self, warning: str) -> None:
        """Add a warning to every answer of ``/readyz``."""
        self._warning = warning

    def exposition(self, wanted: Collection[str] = ()) -> bytes:
        """Return the answer of ``/metrics`` in Prometheus' text format, with all metrics or with the ``wanted`` ones, by name."""
        return generate_latest(_Chosen(self._instruments, self._readings, wanted) if wanted else self._registry)

    def serve(self, host: str, port: int) -> int:
        """Serve ``/metrics``, ``/healthz`` and ``/readyz`` from separate threads; returns the port (0 takes a free one).

        Raises ``MetricsEndpointError``, an ``OSError`` that names host and port, if the address cannot be bound.
        """
        if self._endpoint is not None:
            raise RuntimeError(f"already serving on port {self._endpoint.port}")
        self._endpoint = HttpEndpoint(host, port, {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz})
        return self._endpoint.port

    @property
    def port(self) -> int:
        """The port; 0 if nothing is served."""
        return self._endpoint.port if self._endpoint is not None else 0

    def close(self) -> None:
        """Stop serving. May be called twice."""
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def _metrics(self, wanted: Sequence[str] = ()) -> Reply:
        return Reply(200, self.exposition(wanted), "text/plain; version=0.0.4; charset=utf-8")

    def _healthz(self, _names: Sequence[str] = ()) -> Reply:
        age = self.heartbeat_age_seconds
        if self.alive():
            return Reply.line(200, "ok")
        return Reply.line(503, f"the main loop has been silent for {age:.1f} s; the limit is {self._alive_seconds:g} s")

    def _readyz(self, _names: Sequence[str] = ()) -> Reply:
        reason, warning = self._readiness, f"; warning: {self._warning}" if self._warning else ""
        if self._ready:
            return Reply.line(200, (f"ok: {reason}" if reason else "ok") + warning)
        return Reply.line(503, f"not ready: {reason or 'no reason given'}{warning}")

    def _export_process(self, run: str) -> None:
        process = psutil.Process()
        version = importlib.metadata.version("herd-rl")
        self.gauge(names.PROCESS_INFO, service=self.service, run=run, version=version).set(1)
        self.read(names.PROCESS_RESIDENT_MEMORY, lambda: float(process.memory_info().rss))
        self.read(names.PROCESS_CPU, lambda: sum(process.cpu_times()[:2]))
        self.read(names.HEARTBEAT_AGE, lambda: self.heartbeat_age_seconds / self._alive_seconds)
        if self.service in names.MOVE_WEIGHTS:
            self.read(names.WEIGHTS_AGE, lambda: float("nan") if self._weights_at is None else self._clock() - self._weights_at)

    def _instrument(self, kind: type[Instrument], metric: names.Metric, labels: Mapping[str, str]) -> Instrument:
        values = self._label_values(metric, labels)
        with self._lock:
            instrument = self._instruments.get(metric.name)
            if instrument is None:
                instrument = self._instruments[metric.name] = self._make(metric)
        if not isinstance(instrument, kind):
            raise TypeError(f"{metric.name} is a {type(instrument).__name__}, not a {kind.__name__}")
        return instrument.labels(*values) if values else instrument

    def _make(self, metric: names.Metric) -> Counter | Gauge | Histogram:
        instrument: Counter | Gauge | Histogram
        if isinstance(metric, names.HistogramMetric):
            instrument = Histogram(metric.name, metric.help, metric.labels, registry=self._registry, buckets=metric.buckets)
        else:
            kind = Counter if isinstance(metric, names.CounterMetric) else Gauge
            instrument = kind(metric.name, metric.help, metric.labels, registry=self._registry)
        if self.service != "actor":
            # If a series appears with its first event, rate() misses this event. Actors accept this to save series.
            for value in metric.values:
                instrument.labels(value)
        return instrument

    def _label_values(self, metric: names.Metric, labels: Mapping[str, str]) -> Labels:
        if self.service not in metric.services:
            raise ValueError(f"{metric.name} is not a metric of the {self.service}, but of {', '.join(metric.services)}")
        if set(labels) != set(metric.labels):
            raise ValueError(f"{metric.name} takes the labels {list(metric.labels)}, not {sorted(labels)}")
        values = tuple(labels[label] for label in metric.labels)
        if metric.values and values[0] not in metric.values:
            if "other" not in metric.values:
                raise ValueError(f"{metric.name}: {metric.labels[0]} must be one of {', '.join(metric.values)}, not {values[0]!r}")
            return ("other",)
        return values


class _Readings(Collector):
    """Metrics whose values are read at each scrape."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[str, tuple[names.Metric, dict[Labels, Callable[[], float]]]] = {}

    def add(self, metric: names.Metric, values: Labels, function: Callable[[], float]) -> None:
        with self._lock:
            self._functions.setdefault(metric.name, (metric, {}))[1][values] = function

    def collect(self, wanted: Collection[str] = ()) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Read all metrics, or the ``wanted`` ones. A reading that raises is logged, and only its sample is missing."""
        with self._lock:  # a reading may be added during a scrape
            chosen = [(metric, list(own.items())) for metric, own in self._functions.values() if not wanted or metric.name in wanted]
        for metric, functions in chosen:
            kind = CounterMetricFamily if isinstance(metric, names.CounterMetric) else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for values, function in functions:
                try:
                    value = function()
                except Exception as error:  # whatever a service's own function raises
                    reason = f"{type(error).__name__}: {error}"
                    warn_limited(f"metric {metric.name}", "a metric cannot be read", metric=metric.name, reason=reason)
                    continue
                family.add_metric(values, value)
            yield family


class _Chosen(CollectorRegistry):
    """The registry of a process, restricted to some metrics, so that the others cost nothing."""

    def __init__(self, instruments: Mapping[str, Counter | Gauge | Histogram], readings: _Readings, wanted: Collection[str]) -> None:
        super().__init__()
        self._chosen = [instruments[name] for name in wanted if name in instruments]
        self._read, self._wanted = readings, wanted

    def collect(self) -> Iterable[Metric]:
        for instrument in self._chosen:
            yield from instrument.collect()
        yield from self._read.collect(self._wanted)
