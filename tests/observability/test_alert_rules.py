"""Every alert is evaluated by promtool, on series for which it should fire and on series for which it should not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.observability.alert_cases import CASES, Case
from tests.observability.generated import ALERT_RULES, RECORDING_RULES, ROOT, alerts, recorded
from tests.observability.healthy_run import RUN, STEP_SECONDS, healthy_run
from tests.observability.prometheus_server import tool
from tests.observability.promql import metric_names
from tests.patience import patient

SEVERITIES = {"critical", "warning", "info"}
RUNBOOK = "https://github.com/herd-rl/herd/blob/main/docs/runbook.md"


def promtool_test(case: Case) -> dict[str, Any]:
    """A case in promtool's format, with the ALERTS that fire at its end."""
    series = {**healthy_run(case.minutes), **case.changes}
    read = {"up"} | {metric for rule in needed(case.alert) for metric in metric_names(rule["expr"])}
    severity = alerts()[case.alert]["labels"]["severity"]
    return {
        "name": f"{case.alert}: {case.when}",
        "interval": f"{STEP_SECONDS}s",
        "input_series": [
            {"series": name, "values": values}
            for name, values in series.items()
            if values is not None and name.partition("{")[0] in read - set(case.without)
        ],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}',
                "eval_time": f"{case.minutes:g}m",
                "exp_samples": [
                    {"labels": selector({"alertname": case.alert, "alertstate": "firing", "severity": severity, **labels}), "value": 1}
                    for labels in case.fires
                ],
            }
        ],
    }


def selector(labels: dict[str, str]) -> str:
    return "ALERTS{" + ", ".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def needed(name: str) -> list[dict[str, Any]]:
    """The alert as shipped, preceded by the recording rules that it needs; evaluating all rules for every case would take minutes."""
    rules = [{"alert": name, **alerts()[name]}]
    while missing := {
        metric
        for rule in rules
        for metric in metric_names(rule["expr"])
        if metric in recorded() and metric not in {one.get("record") for one in rules}
    }:
        rules[:0] = [{"record": metric, "expr": recorded()[metric]} for metric in sorted(missing)]
    order = list(recorded())
    return sorted(rules, key=lambda rule: order.index(rule["record"]) if "record" in rule else len(order))


def write_test(folder: Path, name: str, rule_files: list[Path], tests: list[dict[str, Any]]) -> Path:
    path = folder / f"{name}-test.yaml"
    rules = [str(rule_file) for rule_file in rule_files]
    path.write_text(yaml.safe_dump({"rule_files": rules, "evaluation_interval": f"{STEP_SECONDS}s", "tests": tests}))
    return path


def write_cases(folder: Path, name: str, cases: list[Case]) -> Path:
    rules = folder / f"{name}-rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": needed(name)}]}))
    return write_test(folder, name, [rules], [promtool_test(case) for case in cases])


def run_promtool(*tests: Path) -> str:
    """Run promtool; returns the failures, or nothing if all tests pass."""
    done = subprocess.run([tool("promtool"), "test", "rules", *tests], capture_output=True, text=True, timeout=patient(100), check=False)
    found = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() not in {"", "SUCCESS"}]
    return "" if done.returncode == 0 else "\n".join(line for line in found if not line.startswith("Unit Testing"))


@pytest.mark.processes
def test_alerts_fire_exactly_in_the_expected_cases(tmp_path: Path) -> None:
    assert run_promtool(*(write_cases(tmp_path, name, [case for case in CASES if case.alert == name]) for name in alerts())) == ""


@pytest.mark.processes
def test_a_wrong_expectation_fails_its_case(tmp_path: Path) -> None:
    for expected in (True, False):
        case = next(case for case in CASES if bool(case.fires) is expected and case.alert == "HerdNoProgress")
        wrong = Case(alert=case.alert, when=case.when, changes=case.changes, fires=() if expected else (RUN,))
        assert "FAILED" in run_promtool(write_cases(tmp_path, case.alert, [wrong]))


@pytest.mark.processes
def test_a_healthy_run_fires_no_alert(tmp_path: Path) -> None:
    quiet = promtool_test(Case(alert="HerdNoProgress", when="never", changes={}, minutes=90))
    quiet["input_series"] = [{"series": name, "values": values} for name, values in healthy_run(90).items()]
    quiet["promql_expr_test"] = [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": "90m", "exp_samples": []}]
    assert run_promtool(write_test(tmp_path, "healthy", [RECORDING_RULES, ALERT_RULES], [quiet])) == ""


def test_every_alert_has_a_firing_and_a_quiet_case() -> None:
    for name in alerts():
        assert {bool(case.fires) for case in CASES if case.alert == name} == {True, False}, name


def test_every_alert_is_described_with_labels_that_it_has() -> None:
    for name, alert in alerts().items():
        annotations = alert["annotations"]
        assert alert["labels"]["severity"] in SEVERITIES
        assert annotations.keys() == {"summary", "description", "runbook_url"}
        # A label in a condition ({{ with $labels.agent }}) may be missing.
        text = re.sub(r"{{ with .*?{{ end }}", "", annotations["summary"] + annotations["description"])
        used = set(re.findall(r"\$labels\.(\w+)", text))
        for case in CASES:
            if case.alert == name:
                assert all(used <= labels.keys() for labels in case.fires), name


def test_every_alert_links_to_its_section_in_the_runbook() -> None:
    assert {name: alert["annotations"]["runbook_url"] for name, alert in alerts().items()} == {
        name: f"{RUNBOOK}#{name.lower()}" for name in alerts()
    }
    titles = re.findall(r"^### (Herd\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(titles) == sorted(alerts())
