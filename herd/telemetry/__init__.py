"""Metrics, health endpoint and logs of every process. Only this package imports prometheus_client."""

from prometheus_client import Counter, Gauge, Histogram

from herd.telemetry.http_endpoint import MetricsEndpointError
from herd.telemetry.telemetry import DEFAULT_ALIVE_SECONDS, Telemetry

__all__ = ["DEFAULT_ALIVE_SECONDS", "Counter", "Gauge", "Histogram", "MetricsEndpointError", "Telemetry"]
