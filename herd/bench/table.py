"""The report of ``herd bench`` as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping


def print_table(measured: Mapping[str, object], console: Console | None = None) -> None:
    """Print what `herd.bench.command.make_report` made."""
    report = cast("Mapping[str, Any]", measured)
    console = console if console is not None else Console()
    table = Table(title="one agent step, and how many a second")
    for heading in ("stage", "core-us per step", "(min, max)", "wall-us per step", "agent steps/s", "(min, max)", "frames/s"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for name, stage in report["stages"].items():
        if name == "system":
            table.add_section()
        cost_low, cost_high = stage["core_microseconds_per_agent_step_spread"]
        rate_low, rate_high = stage["agent_steps_per_second_spread"]
        table.add_row(
            name if stage["device"] == "cpu" else f"{name} ({stage['device']})",
            f"{stage['core_microseconds_per_agent_step']:,.1f}",
            f"({cost_low:,.1f}, {cost_high:,.1f})",
            f"{stage['wall_microseconds_per_agent_step']:,.1f}",
            f"{stage['agent_steps_per_second']:,.0f}",
            f"({rate_low:,.0f}, {rate_high:,.0f})",
            f"{stage['frames_per_second']:,.0f}",
        )
    console.print(table)
    ceiling, hardware = report["ceiling"], report["hardware"]
    console.print(
        f"ceiling of this machine: {ceiling['agent_steps_per_second']:,.0f} agent steps/s, {ceiling['frames_per_second']:,.0f} frames/s "
        f"({hardware['usable_cores']} cores / sum of core-us)"
    )
    console.print(f"the whole system reaches {report['share_of_ceiling']:.0%} of it")
    console.print(f"{hardware['processor']}; python {hardware['python']}, torch {hardware['torch']}; {report['date']}")
