"""Loads the generated files as their consumers do."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILES = ROOT / "helm" / "herd" / "files"
DASHBOARD = FILES / "herd-dashboard.json"
RECORDING_RULES = FILES / "recording-rules.yaml"
ALERT_RULES = FILES / "alert-rules.yaml"


def _rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


@cache
def dashboard() -> dict[str, Any]:
    """The dashboard that Grafana imports."""
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return loaded


@cache
def recorded() -> dict[str, str]:
    """Expression of each recording rule, by the name that it records."""
    return {rule["record"]: rule["expr"] for rule in _rules(RECORDING_RULES)}


@cache
def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules, by name."""
    return {rule.pop("alert"): rule for rule in _rules(ALERT_RULES)}


def panels() -> list[tuple[str, dict[str, Any]]]:
    """Every panel except the rows themselves, with the title of its row."""
    found, row = [], ""
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            found += [(row, inner) for inner in panel["panels"] or []]  # of a folded row
        else:
            found.append((row, panel))
    return found


def targets() -> list[str]:
    """Every query of every panel."""
    return [target["expr"] for _, panel in panels() for target in panel["targets"]]
