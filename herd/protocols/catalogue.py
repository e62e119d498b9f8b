"""Every metric that any process exports. ``python -m herd.protocols.catalogue > docs/metrics.md`` writes the reference page."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import herd.protocols
from herd.telemetry import metrics, training
from herd.telemetry.metrics import EVERY_SERVICE, CounterMetric, GaugeMetric, HistogramMetric, Metric

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName

_CONVERSATIONS = (each.name for each in iter_modules(herd.protocols.__path__) if each.ispkg)
_OWNERS = (metrics, training, *(import_module(f"herd.protocols.{name}.metrics") for name in _CONVERSATIONS))
CATALOGUE: tuple[Metric, ...] = tuple(each for owner in _OWNERS for each in vars(owner).values() if isinstance(each, Metric))
"""Every metric, in the order of the modules."""
WORK_DONE: dict[ServiceName, Metric] = {metric.services[0]: metric for metric in CATALOGUE if metric.counts_work} | {
    "learner": metrics.WEIGHTS_UPDATES  # counts over the whole run: repeating lost updates is no progress
}
"""The metric that increases while a process of the service makes progress."""

_KINDS = {CounterMetric: "counter", GaugeMetric: "gauge", HistogramMetric: "histogram"}

_HEAD = """\
# Metrics

Generated from the `metrics.py` of each conversation and `herd/telemetry` by `python -m herd.protocols.catalogue`; do not edit.

Every process serves `/metrics` (Prometheus text), `/healthz` (200 while its main loop is running) and `/readyz` (200 when it is
ready) at the address that `--metrics` gives. To tell processes apart, use the labels `job` and `instance`, which Prometheus adds.
An actor exports about 30 series. Only the learner, the bandit and the evaluator export series per task.
"""


def render_reference() -> str:
    """Return ``docs/metrics.md`` as Markdown, with tables for all processes, for shared metrics, and for each service."""
    sections = [("Every process", EVERY_SERVICE)]
    shared = dict.fromkeys(metric.services for metric in CATALOGUE if 1 < len(metric.services) < len(EVERY_SERVICE))
    sections += [(f"{', '.join(services[:-1])} and {services[-1]}".capitalize(), services) for services in shared]
    sections += [(service.capitalize(), (service,)) for service in EVERY_SERVICE]
    return "\n".join([_HEAD, *(_section(title, services) for title, services in sections)])


def _section(title: str, services: tuple[ServiceName, ...]) -> str:
    rows = [_row(metric) for metric in CATALOGUE if metric.services == services]
    return "\n".join([f"## {title}", "", "| name | type | unit | labels | meaning |", "| --- | --- | --- | --- | --- |", *rows, ""])


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if metric.values:
        labels += ": " + ", ".join(metric.values)
    return f"| `{metric.name}` | {_KINDS[type(metric)]} | {metric.unit} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(render_reference())
