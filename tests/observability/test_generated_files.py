"""The dashboard and the rules that the chart ships are valid, complete and up to date, and refer to existing metrics."""

from __future__ import annotations

import re
from collections import Counter

import promql_parser

from herd.protocols.catalogue import CATALOGUE
from herd.telemetry.metrics import RESTART_REASONS, CounterMetric, HistogramMetric
from herd.topology import COMPONENT_NAMES
from observability.__main__ import FILE
from observability.dashboard import NO_VALUE, dashboard_json
from tests.observability.generated import DASHBOARD, FILES, alerts, dashboard, panels, recorded, targets
from tests.observability.promql import metric_names, operands, selectors
from tests.observability.test_live_dashboard import RUNS, releases_with

OF_PROMETHEUS = {"up", "ALERTS"}
STAGES = [
    *("Run", "Actors", "Queue", "Learner", "Weights", "Scores", "Wire"),
    *("Central inference", "Replay", "Bandit", "Population", "Evaluation"),
]
TARGET_LABELS = {"namespace", "release", "component", "pod", "agent"}
VARIABLES = {"$namespace": "lab", "$release": "pong", "$agent": ".*", "$task": ".*", "$target": "1000", "$__rate_interval": "1m"}
READ_ELSEWHERE = {
    "herd_process_info",  # the dashboard's variables, and viewers
    "herd_actor_environments_replaced_total",  # the view of herd train
    *("herd_weights_lineage", "herd_paramserver_agent_lineage", "herd_actor_unacknowledged_unrolls"),  # herd status, fault tests
    *("herd_learner_unrolls_dropped_total", "herd_evaluator_episodes_total"),
    *("herd_bandit_restored_episodes", "herd_bandit_snapshots_written_total"),
    *("herd_replay_restored_agent_steps", "herd_replay_snapshots_written_total"),
    *("herd_replay_episodes", "herd_replay_open_agent_steps"),  # benchmarks.replay
    *("herd_inference_pending_requests", "herd_paramserver_requests_total", "herd_paramserver_answers_total"),
    *("herd_paramserver_stale_publishes_total", "herd_paramserver_moves_total"),
    *("herd_paramserver_agent_leased_indices", "herd_learner_learning_rate"),
}
"""Metrics for a diagnosis by hand, or that tests of whole processes and benchmarks read, and that no panel shows."""
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
    return [*rule_expressions().values(), *map(filled, targets())]


def test_the_dashboard_is_up_to_date() -> None:
    assert FILE == DASHBOARD
    assert DASHBOARD.read_text() == dashboard_json(), "not fresh: make docs"


def test_expressions_parse_and_use_existing_series() -> None:
    for expression in every_expression():
        promql_parser.parse(expression)
        assert metric_names(expression) <= exported() | OF_PROMETHEUS | recorded().keys(), expression


def test_every_metric_has_a_reader() -> None:
    used = {name for expression in every_expression() for name in metric_names(expression)}
    unused = {metric.name for metric in CATALOGUE if not any(name.startswith(metric.name) for name in used)}
    assert unused == READ_ELSEWHERE


def test_every_selector_in_rules_is_limited_to_runs() -> None:
    for name, expression in rule_expressions().items():
        for selector in selectors(expression):
            scopes = [(matcher.value, str(matcher.op)) for matcher in selector.matchers.matchers if matcher.name == "release"]
            assert scopes == [("", "MatchOp.NotEqual")], f"{name} reads {selector.name} of strangers"
            # The chart replaces exactly this text with its own namespace and release.
        assert expression.count('release!=""') == len(selectors(expression)), name


def test_recorded_series_are_named_and_aggregated_by_run() -> None:
    for name, expression in recorded().items():
        assert RECORDED_NAME.fullmatch(name)
        assert "namespace, release" in expression, name


def test_series_of_learners_are_never_mixed_over_agents() -> None:
    # Over a population, a sum or a maximum of different agents is neither the speed of one nor the lag of another.
    for name, expression in rule_expressions().items():
        of_learners = {metric for metric in metric_names(expression) if metric.startswith("herd_learner_")}
        # How many actors wait for a service is a question about the run.
        if of_learners - {"herd_learner_write_failures_total"} and not name.endswith("Silent"):
            assert "by (namespace, release, agent" in expression, name


def test_present_values_are_asked_for_as_they_are_now() -> None:
    # The last value of a range would stay green for hours after the run has died.
    for row, panel in panels():
        if panel["type"] in {"stat", "bargauge"}:
            assert all(target["instant"] and not target.get("range") for target in panel["targets"]), (row, panel["title"])


def test_legends_and_titles_can_be_read() -> None:
    for row, panel in panels():
        assert len(panel["title"]) <= 7 * panel["gridPos"]["w"], (row, panel["title"])  # Grafana cuts off longer ones
        legend = panel["options"].get("legend", {})
        if legend.get("displayMode") == "table":  # it scrolls, so what matters is above
            assert (legend["sortBy"], legend["sortDesc"]) == ("Max", True), (row, panel["title"])


def test_a_panel_of_a_part_that_a_run_lacks_is_folded_or_says_why_it_is_empty() -> None:
    folded = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row" and panel["collapsed"]]
    assert folded == STAGES[7:]
    for row, panel in panels():
        said = panel["fieldConfig"]["defaults"]["noValue"]
        # The live dashboard's tests show that the other panels are never empty.
        may_be_empty = not any(releases_with(target["expr"]) == tuple(RUNS) for target in panel["targets"])
        assert said, (row, panel["title"])
        assert said != NO_VALUE or not (row in folded or may_be_empty), (row, panel["title"])


def test_no_alert_misses_a_cause_by_accident() -> None:
    left_out = {}
    for name, alert in alerts().items():
        for selector in selectors(alert["expr"]):
            for metric in (each for each in CATALOGUE if each.name == selector.name and each.values):
                selected = set(metric.values)
                for matcher in (each for each in selector.matchers.matchers if each.name == metric.labels[0]):
                    found = {value for value in metric.values if re.fullmatch(matcher.value, value)}
                    selected = selected - found if "Not" in str(matcher.op) else selected & found
                assert selected, (name, metric.name)
                if selected != set(metric.values):
                    left_out[name] = set(metric.values) - selected
    assert left_out == {
        "HerdMessagesRefused": set(RESTART_REASONS),
        "HerdAuthenticationFailures": {"incomplete"},
        "HerdTemperaturesReused": {"duplicate", "late", "unknown", "non_finite", "out_of_range"},
        "HerdReplayShortOfMemory": {"capacity"},
        "HerdPopulationOrdersFail": {"unchanged"},
    }


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
    assert (row, first["title"], first["type"]) == ("Run", "Frames per second", "stat")
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
    assert Counter(panel["id"] for _, panel in panels()).most_common(1)[0][1] == 1
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
    assert list(variables) == ["datasource", "namespace", "release", "agent", "task", "target"]
    for choice in ("agent", "task"):
        assert (variables[choice]["includeAll"], variables[choice]["multi"], variables[choice]["allValue"]) == (True, True, ".*")
    for row, panel in panels():
        for target in panel["targets"]:
            assert re.search(r'namespace="\$namespace", release="\$release"|vector', target["expr"]), (row, panel["title"])


def test_generated_files_fit_into_a_config_map() -> None:
    # A ConfigMap is limited to 1 MiB, and so is the Secret in which Helm stores a release, compressed.
    assert sum(path.stat().st_size for path in FILES.iterdir()) < 300_000
