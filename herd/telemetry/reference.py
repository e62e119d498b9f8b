"""The reference page of all metrics: ``python -m herd.telemetry.reference > docs/metrics.md``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from herd.telemetry import metric_names as names

if TYPE_CHECKING:
    from herd.topology import ServiceName

_KINDS = {names.CounterMetric: "counter", names.GaugeMetric: "gauge", names.HistogramMetric: "histogram"}

_HEAD = """\
# Metrics

Generated from `herd/telemetry/metric_names.py` by `python -m herd.telemetry.reference`; do not edit.

Every process serves `/metrics` (Prometheus text), `/healthz` (200 while its main loop goes round) and `/readyz` (200 once it does
its work) on `<service>.metrics_port`. Prometheus' own `job` and `instance` labels tell processes apart: no metric is labelled by
pod, actor or host. An actor exports at most 30 series; series per task come from the learner and the bandit only.
"""


def render_reference() -> str:
    """Return ``docs/metrics.md`` as Markdown: one table for all processes, one for what some share, one per service."""
    sections = [("Every process", names.EVERY_SERVICE)]
    shared = dict.fromkeys(metric.services for metric in names.CATALOGUE if 1 < len(metric.services) < len(names.EVERY_SERVICE))
    sections += [(" and ".join(services).capitalize(), services) for services in shared]
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
