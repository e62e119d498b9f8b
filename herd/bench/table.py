"""The report of ``herd bench`` as a table within 80 columns. The JSON object has more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = ("core-us\nper step", "min, max", "agent\nsteps/s", "min, max", "env\nframes/s")


def print_table(measured: Mapping[str, object], console: Console | None = None) -> None:
    """Print the report of `herd.bench.command.make_report`."""
    report = cast("Mapping[str, Any]", measured)
    console = console if console is not None else Console()
    table = Table()
    table.add_column("stage", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, stage in report["stages"].items():
        if name == "system":
            table.add_section()
        cost, rate = stage["core_microseconds_per_agent_step"], stage["agent_steps_per_second"]
        table.add_row(
            name,
            f"{cost:,.1f}",
            _deviation(cost, stage["core_microseconds_per_agent_step_spread"]),
            f"{rate:,.0f}",
            _deviation(rate, stage["agent_steps_per_second_spread"]),
            f"{stage['frames_per_second']:,.0f}",
        )
    console.print(table)
    for line in _conclusions(report):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _conclusions(report: Mapping[str, Any]) -> list[str]:
    ceiling, hardware = report["ceiling"], report["hardware"]
    learner = report["stages"]["learner"]["device"]
    on_device = "" if learner == "cpu" else f", learner on {learner}"
    return [
        f"ceiling: {ceiling['agent_steps_per_second']:,.0f} agent steps/s, {ceiling['frames_per_second']:,.0f} env frames/s "
        f"({hardware['usable_cores']} cores / sum of core-us)",
        f"the whole system reaches {report['share_of_ceiling']:.0%} of it",
        f"{hardware['processor']}{on_device}; python {hardware['python']}, torch {hardware['torch']}; {report['date']}",
    ]


def _deviation(median: float, spread: tuple[float, float]) -> str:
    """Return the differences of the lowest and the highest repeat from the median."""
    low, high = spread
    return f"{low / median - 1:+.0%} {high / median - 1:+.0%}"
