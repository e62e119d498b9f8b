"""The runbook covers every warning that a process can log, every reason label of a metric, and every metric that counts failures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from herd.protocols.catalogue import CATALOGUE
from herd.telemetry.metrics import Metric

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
LOGGING = frozenset({"warning", "error", "exception", "critical", "warn", "warn_limited"})
"""Functions and methods that log at warning level or above; in the limited ones the event follows the key."""
LIMITED = frozenset({"warn", "warn_limited"})
PASSED_THROUGH = {
    "herd/components/suites/gymnasium/game.py": 1,  # close() failed, with the error
    "herd/telemetry/logs.py": 2,  # the limited warnings themselves
    "herd/transport/context.py": 1,  # lines by reason, which the runbook lists
    "herd/transport/tcp.py": 1,  # events about a client's connection, defined in herd/transport/handshakes.py
}
"""Number of calls per file whose event is built elsewhere. Check for each new one whether the runbook can list its lines."""
SELF_EXPLANATORY = frozenset(
    {
        "a metric cannot be read",
        "a page cannot be made",
        "a tracker did not finish: the newest points are missing",
        "a tracker failed",
        "a tracker is too slow: a point was left out",
        "cannot announce this process",
        "cannot be used",  # the cache of DeepMind Lab's levels
        "cannot tell which version was evaluated last",
        "dropped a malformed answer from the parent",
        "dropped damaged weights from the parent",
        "dropped invalid weights from the parent",
        "is not a state of a bandit; it is passed over",
        "it is passed over",
        "log lines were lost",
        "the bandit did not confirm the last games",
        "the learner has lost unrolls: this run will not repeat",
        "the parameter server did not confirm the end of this agent",
        "the record of games could not be written",
    }
)
"""Warnings that need no entry: the line has its reason, and training goes on without anyone's help."""
REFUSALS = " refuses "
"""In the clients' lines whose reasons the runbook lists under HerdMessagesRefused."""
REASONS = ("reason", "cause")
"""Labels that tell an operator the reason; the runbook must explain each of their values."""
SHORTEST = 8
"""Number of leading characters that identify an event whose end is a value."""


def sources() -> list[Path]:
    return sorted(path for room in ("herd", "services") for path in (ROOT / room).rglob("*.py"))


def events_of(path: Path) -> Iterator[str | None]:
    """The event of each such call; None if it is not a literal there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        receiver = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if name not in LOGGING or receiver in {"warnings", "self._parser", "parser"}:
            continue
        position = 1 if name in LIMITED else 0
        yield written(node.args[position]) if len(node.args) > position else None


def written(event: ast.expr) -> str | None:
    """The longest constant piece of an event."""
    if isinstance(event, ast.Constant) and isinstance(event.value, str):
        pieces = re.split(r"%[-\d.]*[a-z]", event.value)
    elif isinstance(event, ast.JoinedStr):
        pieces = [part.value for part in event.values if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    else:
        return None
    longest = max(pieces, key=len, default="").strip(" :;,(")
    return longest if len(longest) >= SHORTEST else None


@cache
def logged() -> dict[str, list[str | None]]:
    found = {path.relative_to(ROOT).as_posix(): list(events_of(path)) for path in sources()}
    return {path: events for path, events in found.items() if events}


def events() -> list[tuple[str, str]]:
    return [(path, event) for path, found in logged().items() for event in found if event is not None]


def reasons() -> list[tuple[Metric, str]]:
    return [(metric, value) for metric in CATALOGUE if set(metric.labels) & set(REASONS) for value in metric.values]


def test_every_warning_is_in_the_runbook() -> None:
    known = {event for _, event in events()}
    assert {"dropped a malformed message", "checkpoint failed", "checkpoint skipped"} <= known
    assert known >= SELF_EXPLANATORY
    missing = [
        f"{path} logs {event!r}"
        for path, event in events()
        if event not in RUNBOOK and event not in SELF_EXPLANATORY and REFUSALS not in event
    ]
    assert not missing, "say in docs/runbook.md what it means and what to do"


def test_warnings_have_literal_events() -> None:
    hidden = {path: found.count(None) for path, found in logged().items() if None in found}
    assert hidden.items() <= PASSED_THROUGH.items(), hidden


def test_every_reason_and_failure_is_in_the_runbook() -> None:
    missing = [f"{metric.name} counts by {value!r}" for metric, value in reasons() if f"`{value}`" not in RUNBOOK]
    missing += [metric.name for metric in CATALOGUE if metric.name.endswith("_failures_total") and metric.name not in RUNBOOK]
    assert not missing, "say in docs/runbook.md when to look at it and what to do"
