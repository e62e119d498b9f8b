"""The reference page of all metrics: ``python -m herd.telemetry.reference > docs/metrics.md``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from herd.telemetry import metric_names as names

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName

_KINDS = {names.CounterMetric: "counter", names.GaugeMetric: "gauge", names.HistogramMetric: "histogram"}

_HEAD = """\
# Metrics

Generated from `herd/telemetry/metric_names.py` by `python -m herd.telemetry.reference`; do not edit.

Every process serves `/metrics` (Prometheus text), `/healthz` (200 while its main loop is running) and `/readyz` (200 when it is
ready) where `--metrics` says. Prometheus' own labels `job` and `instance` identify processes: no metric is labelled by pod, actor
or host. An actor exports about 30 series; only the learner, the bandit and the evaluator export series per task.
"""


def render_reference() -> str:
    """Return ``docs/metrics.md`` as Markdown, with tables for all processes, for shared metrics, and for each service."""
    sections = [("Every process", names.EVERY_SERVICE)]
    shared = dict.fromkeys(metric.services for metric in names.CATALOGUE if 1 < len(metric.services) < len(names.EVERY_SERVICE))
    sections += [(f"{', '.join(services[:-1])} and {services[-1]}".capitalize(), services) for services in shared]
    sections += [(service.capitalize(), (service,)) for service in names.EVERY_SERVICE]
    return "\n".join([_HEAD, *(_section(title, services) for title, services in sections)])


def _section(title: str, services: tuple[ServiceName, ...]) -> str:
    rows = [_row(metric) for metric in names.CATALOGUE if metric.services == services]
    return "\n".join([f"## {title}", "", "| name | type | unit | labels | meaning |", "| --- | --- | --- | --- | --- |", *rows, ""])


def _row(metric: names.Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if metric.values:
        labels += ": " + ", ".join(metric.values)
    return f"| `{metric.name}` | {_KINDS[type(metric)]} | {metric.unit} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(render_reference())
