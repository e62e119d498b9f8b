"""The number of series that a cluster costs Prometheus, counted in registries with everything that the catalogue allows."""

from __future__ import annotations

import re

import pytest

from herd.config.addresses import ServiceName
from herd.protocols import catalogue
from herd.telemetry import metrics
from herd.telemetry.telemetry import Telemetry
from tests.observability.generated import recorded

ACTOR_BUDGET = 30
"""Maximum number of series of an actor."""
ACTING_BUDGET = 9
"""Additional series of an actor whose actions come from the inference service."""
NUM_ACTORS = 4_000
NUM_SHARDS = 8
NUM_SERVERS = 1 + 125
"""The root, and one replica for every 32 actors."""
TASKS = [f"task_{number}" for number in range(57)]
NUMBERS_OF_A_LOSS = [f"number_{number}" for number in range(32)]
"""The maximum number of metrics that a loss may name."""
LAYERS = [str(number) for number in range(1, 16)]
"""The layers of the deep network with a ReLU, and the one that mixes in side inputs."""
TILES = [str(number) for number in range(39)]
ADDED_BY_PROMETHEUS = 5
"""Series per target: up, scrape_duration_seconds, scrape_samples_scraped, scrape_samples_post_metric_relabeling, scrape_series_added."""
EXPORTED_BY_TELEMETRY = {
    metrics.PROCESS_INFO,
    metrics.PROCESS_RESIDENT_MEMORY,
    metrics.PROCESS_CPU,
    metrics.HEARTBEAT_AGE,
    metrics.WEIGHTS_AGE,
}
STATISTICS = ["mean", "median", "mean_capped", "interquartile_mean", "saber_mean", "saber_median"]
"""Statistics of human-normalised scores."""
SETTINGS = [f"section.setting_{number}" for number in range(4)]
"""Names of swept settings; the papers' populations change four."""
OPEN_LABELS = {
    "task": TASKS,
    "agent": ["0"],
    "tile": TILES,
    "term": NUMBERS_OF_A_LOSS,
    "name": NUMBERS_OF_A_LOSS,
    "layer": LAYERS,
    "setting": SETTINGS,
    "statistic": STATISTICS,
}


def exposition(service: ServiceName) -> list[str]:
    """Every series that a process of this service can ever have."""
    telemetry = Telemetry(service, "run")
    make = {metrics.CounterMetric: telemetry.counter, metrics.GaugeMetric: telemetry.gauge, metrics.HistogramMetric: telemetry.histogram}
    for metric in catalogue.CATALOGUE:
        if service in metric.services and metric not in EXPORTED_BY_TELEMETRY:
            for labels in label_values(metric):
                make[type(metric)](metric, **labels)  # type: ignore[operator]
    lines = [line for line in telemetry.exposition().decode().splitlines() if not line.startswith("#")]
    assert all(line.startswith("herd_") for line in lines), "a foreign collector joined the registry"
    return lines


def label_values(metric: metrics.Metric) -> list[dict[str, str]]:
    combinations: list[dict[str, str]] = [{}]
    for label in metric.labels:
        values = list(metric.values) or OPEN_LABELS[label]
        combinations = [{**combination, label: value} for combination in combinations for value in values]
    return combinations


@pytest.fixture(scope="module")
def series() -> dict[str, int]:
    """Number of series of one process of each service."""
    return {service: len(exposition(service)) for service in metrics.EVERY_SERVICE}


def test_an_actor_stays_within_its_series_budget(series: dict[str, int]) -> None:
    acting = [line for line in exposition("actor") if re.match("herd_actor_inference_(?!seconds)", line)]
    assert len(acting) <= ACTING_BUDGET
    assert series["actor"] - len(acting) <= ACTOR_BUDGET


def test_the_series_of_4000_actors_fit_a_small_prometheus(series: dict[str, int]) -> None:
    actors = NUM_ACTORS * (ACTOR_BUDGET + ADDED_BY_PROMETHEUS)
    others = (
        NUM_SHARDS * (series["learner"] + ADDED_BY_PROMETHEUS)
        + NUM_SERVERS * (series["paramserver"] + ADDED_BY_PROMETHEUS)
        + series["bandit"]
        + ADDED_BY_PROMETHEUS
    )
    assert actors <= 140_000
    assert others <= 25_000
    # docs/observability.md states these numbers.
    assert series["learner"] < 500
    assert series["bandit"] < 5_600
    assert series["evaluator"] < 150
    assert series["inference"] < 80
    assert series["population"] < 50  # plus six for each member after the first: docs/metrics.md


def test_recording_rules_aggregate_over_actors() -> None:
    for name, expression in recorded().items():
        by = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", labels)}
        assert by <= {"namespace", "release", "agent", "component", "task", "reason", "phase", "stream", "le"}, name
