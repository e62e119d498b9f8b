"""The generated files that the chart ships are up to date, valid and complete, and refer to existing metrics."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

import promql_parser
import pytest

from herd.telemetry.metric_names import CATALOGUE, CounterMetric, HistogramMetric
from herd.topology import COMPONENT_NAMES
from observability.__main__ import FOLDER, render
from tests.observability.generated import ALERT_RULES, FILES, RECORDING_RULES, alerts, dashboard, panels, recorded, targets
from tests.observability.prometheus_server import tool
from tests.observability.promql import metric_names, operands, selectors
from tests.patience import patient

OF_PROMETHEUS = {"up", "ALERTS"}
STAGES = [
    *("Frames per second", "Actors", "Inference", "Wire", "Queue", "Learner", "Weights"),
    *("Replay", "Bandit", "Population", "Scores", "Evaluation"),
]
TARGET_LABELS = {"namespace", "release", "component", "pod"}
VARIABLES = {"$namespace": "lab", "$release": "pong", "$task": ".*", "$target": "1000", "$__rate_interval": "1m"}
RECORDED_NAME = re.compile(r"herd:[a-z0-9_]+:[a-z0-9_]+")


def exported() -> set[str]:
    """Names of the series as they are scraped."""
    names: set[str] = set()
    for metric in CATALOGUE:
        names |= (
            {metric.name + suffix for suffix in ("_bucket", "_sum", "_count")} if isinstance(metric, HistogramMetric) else {metric.name}
        )
    return names


def filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def rule_expressions() -> dict[str, str]:
    return {**recorded(), **{name: alert["expr"] for name, alert in alerts().items()}}


def every_expression() -> list[str]:
    return [*rule_expressions().values(), *(filled(target.expression) for target in targets())]


def test_the_generated_files_are_up_to_date() -> None:
    assert FOLDER == FILES
    for name, text in render().items():
        assert (FILES / name).read_text() == text, f"{name} is not fresh: make docs"


@pytest.mark.processes
def test_promtool_accepts_the_rule_files() -> None:
    done = subprocess.run(
        [tool("promtool"), "check", "rules", RECORDING_RULES, ALERT_RULES], capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("expression", every_expression())
def test_expressions_parse_and_use_existing_series(expression: str) -> None:
    promql_parser.parse(expression)
    assert metric_names(expression) <= exported() | OF_PROMETHEUS | recorded().keys()


def test_every_metric_is_used_in_an_expression() -> None:
    used = {name for expression in every_expression() for name in metric_names(expression)}
    assert exported() - used == {
        "herd_bandit_inverse_temperature_sum",  # 1/tau may be infinite
        "herd_bandit_inverse_temperature_count",
    }


@pytest.mark.parametrize(("name", "expression"), rule_expressions().items(), ids=lambda value: value if ":" in value else "")
def test_every_selector_in_rules_is_limited_to_runs(name: str, expression: str) -> None:
    for selector in selectors(expression):
        scopes = [(matcher.value, str(matcher.op)) for matcher in selector.matchers.matchers if matcher.name == "release"]
        assert scopes == [("", "MatchOp.NotEqual")], f"{name} reads {selector.name} of strangers"


@pytest.mark.parametrize("name", sorted(recorded()))
def test_recorded_series_are_named_and_aggregated_by_run(name: str) -> None:
    assert RECORDED_NAME.fullmatch(name)
    assert recorded()[name].count("namespace, release") >= 1


def test_rules_use_only_series_recorded_before_them() -> None:
    seen: set[str] = set()
    for name, expression in recorded().items():
        assert {used for used in metric_names(expression) if ":" in used} <= seen, name
        seen.add(name)


def test_every_recorded_series_is_used() -> None:
    used = {name for expression in every_expression() for name in metric_names(expression)}
    assert recorded().keys() <= used


def test_counters_are_only_used_as_rates_or_increases() -> None:
    counters = {metric.name for metric in CATALOGUE if isinstance(metric, CounterMetric)}
    for expression in every_expression():
        for name in counters & metric_names(expression):
            # The only other use is to ask whether the count is positive.
            assert re.search(rf"{name}{{[^}}]*}}(\[| > 0)", expression), expression


def test_components_in_expressions_match_the_chart() -> None:
    named = {
        value
        for expression in every_expression()
        for selector in selectors(expression)
        for matcher in selector.matchers.matchers
        if matcher.name == "component"
        for value in matcher.value.split("|")
    }
    assert named == set(COMPONENT_NAMES)


def test_operands_splits_comparisons_off() -> None:
    assert operands("sum(a) / sum(b) > 0.5 or count by (x) (c > 1 or c != c) unless on (x) d == 0 and absent(e)") == [
        "sum(a{}) / sum(b{})",
        *("c{}",) * 3,
        "d{}",
        "e{}",
    ]


# --- the dashboard


def test_dashboard_rows_follow_the_stages() -> None:
    assert [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"] == STAGES
    row, first = panels()[0]
    assert (row, first["title"], first["type"]) == ("Frames per second", "Frames per second", "stat")
    assert first["gridPos"] | {"h": 0} == {"x": 0, "y": 1, "w": 7, "h": 0}
    assert max(panel["gridPos"]["w"] * panel["gridPos"]["h"] for _, panel in panels() if panel["type"] == "stat") == 63


def test_every_panel_has_a_description_unit_and_legend() -> None:
    for row, panel in panels():
        assert panel["description"].endswith("."), (row, panel["title"])
        assert panel["fieldConfig"]["defaults"]["unit"], (row, panel["title"])
        assert all(target["legendFormat"] for target in panel["targets"])
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])
        assert panel["datasource"]["uid"] == "${datasource}"


def test_panels_have_unique_titles_and_do_not_overlap() -> None:
    assert Counter(panel["id"] for panel in dashboard()["panels"]).most_common(1)[0][1] == 1
    assert Counter((row, panel["title"]) for row, panel in panels()).most_common(1)[0][1] == 1
    cells = Counter(
        (column, line)
        for panel in dashboard()["panels"]
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    )
    assert set(cells.values()) == {1}
    assert {column for column, _ in cells} == set(range(24))


def test_legends_use_labels_that_the_series_have() -> None:
    metrics = {metric.name: set(metric.labels) for metric in CATALOGUE}
    for row, panel in panels():
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            known = {
                label
                for name in metric_names(filled(target["expr"]))
                for label in metrics.get(name, set()) | set(re.findall(r"\w+", recorded().get(name, "")))
            }
            assert named <= known | TARGET_LABELS, (row, panel["title"])


def test_the_run_is_selected_by_dashboard_variables() -> None:
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "release", "task", "target"]
    assert variables["task"]["includeAll"]
    assert variables["task"]["multi"]
    assert variables["task"]["allValue"] == ".*"
    for row, panel in panels():
        for target in panel["targets"]:
            assert re.search(r'namespace="\$namespace", release="\$release"|vector', target["expr"]), (row, panel["title"])


def test_generated_files_fit_into_a_config_map() -> None:
    # A ConfigMap is limited to 1 MiB, and so is the Secret in which Helm stores a release, compressed.
    assert sum(path.stat().st_size for path in FILES.iterdir()) < 300_000
