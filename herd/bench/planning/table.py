"""A plan for people: every quantity with its arithmetic, then the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from herd.bench.planning.sheet import shown, shown_bytes

if TYPE_CHECKING:
    from herd.bench.planning.plan import Plan
    from herd.bench.planning.sheet import Line


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """Print the arithmetic, the pods and the notes."""
    console = console if console is not None else Console()
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
