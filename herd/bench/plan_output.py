"""Prints a plan as tables, as JSON, and as values of the Helm chart."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

import yaml

from herd.bench.plan_sheet import shown, shown_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from herd.bench.plan import Plan
    from herd.bench.plan_sheet import Line, Pod

MEBIBYTE = 2**20
MEMORY_ROOM = 1.5
"""Requested memory over measured memory, for other games and the start."""
LEAST_MEMORY_LIMIT = 2048
"""Memory limit of actors and servers in MiB, as in the chart. A server's memory grows with the number of simultaneous clients."""


def as_json(plan: Plan) -> dict[str, object]:
    """Return the plan, ready for JSON."""
    return {
        "arithmetic": [asdict(line) for line in plan.sheet.lines],
        "pods": [asdict(pod) for pod in plan.pods],
        "actors": asdict(plan.actors),
        "learners": asdict(plan.learners),
        "paramservers": asdict(plan.servers),
        "bandit": asdict(plan.bandit) if plan.bandit is not None else None,
        "inference": plan.inference,
        "notes": plan.sheet.notes,
    }


def print_plan(plan: Plan, console: Console) -> None:
    """Print the arithmetic, the pods and the notes."""
    from rich.table import Table  # noqa: PLC0415  values and JSON do without

    arithmetic = Table("", "quantity", "arithmetic", box=None, pad_edge=False)
    arithmetic.add_column("result", justify="right", no_wrap=True)
    section = ""
    for line in plan.sheet.lines:
        if section and line.section != section:
            arithmetic.add_section()
        arithmetic.add_row(line.section if line.section != section else "", line.quantity, line.formula, _result(line))
        section = line.section
    console.print(arithmetic, highlight=False, markup=False)
    console.print()
    pods = Table("pod", box=None, pad_edge=False)
    for heading in ("pods", "cores each", "GPUs each", "memory each", "in each", "out each"):
        pods.add_column(heading, justify="right", no_wrap=True)
    for pod in plan.pods:
        network = (f"{shown_bytes(pod.bytes_in)}/s", f"{shown_bytes(pod.bytes_out)}/s")
        pods.add_row(pod.role, shown(pod.pods), shown(pod.cores), shown(pod.gpus), shown_bytes(pod.memory_bytes), *network)
    console.print(pods, highlight=False, markup=False)
    console.print()
    for note in plan.sheet.notes:
        console.print(f"- {note}", soft_wrap=True, markup=False, highlight=False)


def _result(line: Line) -> str:
    if line.unit in {"B", "B/s"}:
        return f"{shown_bytes(line.value)}{line.unit.removeprefix('B')}"
    return shown(line.value)


def helm_values(plan: Plan, *, experiment: Path | None = None, overrides: Sequence[str] = ()) -> str:
    """Return values for ``helm install --values``.

    Args:
        plan: the plan.
        experiment: the run file that was planned for; None for Breakout with every default.
        overrides: settings from the command line, as words.

    """
    pods = {pod.role: pod for pod in plan.pods}
    values: dict[str, object] = {
        "actor": {"replicas": plan.actors.processes, "resources": _resources(pods["actor"])},
        "learner": {
            "shards": plan.learners.shards,
            "gpu": {"enabled": plan.learners.gpus > 0},
            "resources": {"requests": _asked(pods["learner"]), "limits": _asked(pods["learner"])},
        },
        "paramserver": {"resources": _resources(pods["paramserver"])},
        "paramserverReplica": {"replicas": plan.servers.replicas},
    }
    if plan.servers.replicas:
        values["paramserverReplica"] = {"replicas": plan.servers.replicas, "resources": _resources(pods["paramserver-replica"])}
    for role in ("replay", "inference"):
        if role in pods:
            values[role] = {"replicas": pods[role].pods, "resources": _resources(pods[role])}
    values |= {role: {"resources": _resources(pods[role])} for role in ("population", "evaluator") if role in pods}
    return _comments(plan, experiment, overrides) + yaml.safe_dump(values, sort_keys=False)


def _asked(pod: Pod) -> dict[str, str]:
    return {"cpu": str(math.ceil(pod.cores)), "memory": f"{_mebibytes(pod)}Mi"}


def _resources(pod: Pod) -> dict[str, dict[str, str]]:
    """Return requests and limits. The limits have one more core, for the start and ZeroMQ's thread, and twice the memory."""
    most = max(LEAST_MEMORY_LIMIT, 2 * _mebibytes(pod))
    return {"requests": _asked(pod), "limits": {"cpu": str(math.ceil(pod.cores) + 1), "memory": f"{most}Mi"}}


def _mebibytes(pod: Pod) -> int:
    return math.ceil(MEMORY_ROOM * pod.memory_bytes / MEBIBYTE)


def _comments(plan: Plan, experiment: Path | None, overrides: Sequence[str]) -> str:
    """Return comments about what the release needs in addition to these values."""
    lines = ["The experiment is not in here. Pods of this size fit the one that was planned for:"]
    if experiment is not None:
        lines.append(f"  --set-file experiment={shlex.quote(str(experiment))}")
    elif not overrides:
        lines.append("  none; the chart's own default is Breakout with every default too.")
    if overrides:
        kind = "a copy of that file" if experiment is not None else "an experiment file (--set-file experiment=FILE)"
        lines.append(f"with these settings in {kind}:")
        lines.append(f"  {shlex.join(overrides)}")
    if plan.servers.levels > 1:
        lines.append(
            f"The plan has {plan.servers.levels} levels of replicas, {plan.servers.between} in between, and the chart one: see herd plan."
        )
    return "".join(f"# {' '.join(line.splitlines())}\n" for line in lines)
