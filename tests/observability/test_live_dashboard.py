"""A real Prometheus scrapes two real runs: every panel shows data, and every alert has the series that it reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.observability.generated import ALERT_RULES, RECORDING_RULES, alerts, dashboard, recorded, targets
from tests.observability.prometheus_server import Server
from tests.observability.promql import operands
from tests.patience import patient
from tests.system.whole_runs import Process, until

pytestmark = pytest.mark.processes

NAMESPACE = "lab"
POPULATION, BANDIT = "population", "bandit"
"""Releases: a population of two with an evaluator and a replica of the parameter server; one agent with a bandit, replay and a copy."""
RUNS = {
    POPULATION: (
        "experiments/catch.yaml",
        ("learner-0", "learner-1", "paramserver-0", "paramserver-1", "actor-0", "actor-1", "population-0", "evaluator-0"),
    ),
    BANDIT: ("experiments/dice-catch.yaml", ("learner-0", "paramserver-0", "bandit-0", "replay-0", "actor-0")),
}
SWEEP = {"optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-3, "high": 1e-2}}
SHARED_REPLAY = (
    *("--replay.kind", "shared", "--replay.fraction", "0.5", "--replay.minimum_fill_agent_steps", "500"),
    *("--learner.queue_batches", "8"),
)
WORDS = {
    POPULATION: (
        *("--agents", "2", "--actor.count", "2", "--paramserver.replicas", "1", "--sweep", json.dumps(SWEEP)),
        *("--optimizer.schedule", "constant", "--population.strategy", "pbt", "--population.fitness", "episode_return"),
        *("--population.fitness_episodes", "100", "--population.report_interval_seconds", "1"),
        *("--evaluation.interval_seconds", "5", "--evaluation.episodes", "2"),
    ),
    BANDIT: (
        *(*SHARED_REPLAY, "--replay_service.snapshot_interval_seconds", "1"),
        *("--copy_to", "memory://run", "--learner.checkpoint_interval_seconds", "5"),
    ),
}
ONLY_WITH_BANDIT_REPLAY_OR_COPY = (
    *("herd_bandit_", "herd_replay_", "herd_learner_replay_", "herd_learner_copy_updates"),
    *("herd_wire_request_bytes_total", "herd_wire_answer_bytes_total"),
)
ONLY_IN_POPULATION = ("herd_evaluator_", "herd_population_", 'component="population"')
IN_NO_RUN = (
    *("herd_learner_human_normalised_", "herd_evaluator_normalised_score"),
    *("herd_inference_", "herd_actor_inference_r", "herd_actor_inference_sub", 'component="inference"'),
)
"""Metrics missing from both runs, which have no reference scores and no inference service."""
DATA_SECONDS = patient(300.0)
"""Two scrapes and two evaluations, a second apart, are enough on an idle machine."""

MEMORY = 'herd:process_resident_memory_bytes:max{release!=""}'
SILENT_ALERTS = {f"{MEMORY} / ({MEMORY} offset 6h)": "no run of a test is that old"}
"""Operands that are empty in a healthy run, with the reason. No panel is empty."""


def component_of(process: str) -> str:
    """The chart's component label: the first parameter server is the root."""
    name, _, index = process.rpartition("-")
    return "paramserver-replica" if name == "paramserver" and index != "0" else name


def metrics_port(run_dir: Path, process: str) -> int | None:
    try:
        return int(json.loads((run_dir / "processes" / f"{process}.json").read_text())["metrics_port"])
    except FileNotFoundError:
        return None


def targets_of(release: str, run_dir: Path, processes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Static targets with the labels that a PodMonitor's relabelling gives to pods."""
    return [
        {
            "targets": [f"127.0.0.1:{metrics_port(run_dir, process)}"],
            "labels": {
                "namespace": NAMESPACE,
                "release": release,
                "component": component_of(process),
                "pod": f"{release}-{process}",
                **({"agent": process.partition("-")[2]} if process.startswith("learner") else {}),
            },
        }
        for process in processes
    ]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that scrapes both runs and evaluates the rules once a second."""
    folder = tmp_path_factory.mktemp("live")
    scraped: list[dict[str, Any]] = []
    with ExitStack() as stack:
        started = {}
        for release, (file, _) in RUNS.items():
            words = ("--learner.threads", "1", "--stop.env_frames", "null", "--actor.environments", "8", "--learner.batch_size", "8")
            command: tuple[str | Path, ...] = ("train", file, "--run_dir", folder / release, *words, *WORDS[release])
            started[release] = stack.enter_context(Process(folder / f"{release}.out", "herd.cli.main", *command))
        for release, (_, processes) in RUNS.items():
            until(announced(started[release], folder / release, processes), f"all processes of {release} are there")
            scraped += targets_of(release, folder / release, processes)
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RECORDING_RULES), str(ALERT_RULES)],
            "scrape_configs": [{"job_name": "herd", "static_configs": scraped}],
        }
        yield stack.enter_context(Server(folder, configuration))


def announced(run: Process, run_dir: Path, processes: tuple[str, ...]) -> Callable[[], bool]:
    def met() -> bool:
        assert run.is_running(), run.output
        return all(metrics_port(run_dir, process) is not None for process in processes)

    return met


def has_data(prometheus: Server, expression: str) -> bool:
    return any(not math.isnan(value) for _, value in prometheus.query(expression))


def until_all_have_data(prometheus: Server, expressions: set[str]) -> None:
    """Wait until every expression returns data; fails after the time limit with those that are empty."""
    missing = set(expressions)

    def found() -> bool:
        missing.difference_update({expression for expression in missing if has_data(prometheus, expression)})
        return not missing

    try:
        until(found, "data", seconds=DATA_SECONDS)
    except AssertionError as error:
        raise AssertionError("no data for\n" + "\n".join(sorted(missing))) from error


def rules_of(prometheus: Server) -> list[dict[str, Any]]:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]


def shown(expression: str, release: str) -> str:
    """The expression with the variables that Grafana fills in for one release, every agent and every task."""
    values = {"$namespace": NAMESPACE, "$release": release, "$agent": ".*", "$task": ".*", "$target": "1000", "$__rate_interval": "1m"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def releases_with(expression: str) -> tuple[str, ...]:
    if any(name in expression for name in IN_NO_RUN):
        return ()
    if any(name in expression for name in ONLY_WITH_BANDIT_REPLAY_OR_COPY):
        return (BANDIT,)
    if any(name in expression for name in ONLY_IN_POPULATION):
        return (POPULATION,)
    return (POPULATION, BANDIT)


def test_every_panel_shows_data_of_every_run(prometheus: Server) -> None:
    expressions = {shown(expression, release) for expression in targets() for release in releases_with(expression)}
    assert len(expressions) > 100
    until_all_have_data(prometheus, expressions)


def test_every_alert_reads_series_of_a_healthy_run(prometheus: Server) -> None:
    watched = {operand for alert in alerts().values() for operand in operands(alert["expr"])}
    expressions = {expression for expression in watched if not any(name in expression for name in IN_NO_RUN)}
    assert SILENT_ALERTS.keys() <= expressions
    until_all_have_data(prometheus, expressions - SILENT_ALERTS.keys())


def test_every_rule_is_evaluated_without_an_error(prometheus: Server) -> None:
    until_all_have_data(prometheus, set(recorded()))
    until(lambda: all(rule["health"] != "unknown" for rule in rules_of(prometheus)), "every rule was evaluated")
    rules = rules_of(prometheus)
    assert {rule["name"] for rule in rules} == recorded().keys() | alerts().keys()
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}


def test_a_healthy_run_fires_no_alert(prometheus: Server) -> None:
    until_all_have_data(prometheus, set(recorded()))
    firing = [alert["labels"] for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"]
    assert firing == []


def test_dashboard_variables_list_runs_and_tasks(prometheus: Server) -> None:
    queries = {one["name"]: one["query"]["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query"}
    expected = {"namespace": {NAMESPACE}, "release": {POPULATION, BANDIT}, "agent": {"0"}, "task": {"catch"}}
    assert queries.keys() == expected.keys()
    for name, query in queries.items():
        selector, _, label = query.removeprefix("label_values(").removesuffix(")").rpartition(", ")

        def is_listed(expression: str = shown(selector, BANDIT), label: str = label, values: set[str] = expected[name]) -> bool:
            return {labels[label] for labels, _ in prometheus.query(expression)} == values

        until(is_listed, f"{name} lists {expected[name]}", seconds=DATA_SECONDS)  # one release may be scraped before the other
