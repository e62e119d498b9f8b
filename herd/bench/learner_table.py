"""The report of ``herd bench learner`` for people, within 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

MEANINGS = {
    "wait": "for a batch in this shard's queue",
    "agree": "for the other shards",
    "replay": "for unrolls of the replay service",
    "assemble": "from the queue's blocks and replay",
    "host_to_device": "copy, or the start of one",
    "forward_backward": "losses, gradients, sum over shards",
    "optimizer": "clipping and step",
    "publish": "weights encoded and handed on",
    "other": "accounts, metrics, signals",
}


def print_learner(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the report of `herd.bench.learner.make_report`."""
    console = console if console is not None else Console()
    update = report["update_milliseconds"]
    table = Table()
    table.add_column("phase", no_wrap=True)
    for heading in ("ms per\nupdate", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for phase, milliseconds in report["phase_milliseconds"].items():
        table.add_row(phase, f"{milliseconds:,.2f}", f"{milliseconds / update:.0%}", f"[dim]{MEANINGS[phase]}[/dim]")
    table.add_section()
    table.add_row("update", f"{update:,.2f}", "100%", f"{report['updates_per_second']:,.1f} updates/s")
    console.print(table)
    low, high = report["frames_per_second_spread"]
    settings, hardware = report["settings"], report["hardware"]
    learner = settings["learner"]
    for line in (
        f"{report['frames_per_second']:,.0f} env frames/s ({low:,.0f} to {high:,.0f} in {report['repeats']} repeats), "
        f"{report['agent_steps_per_second']:,.0f} agent steps/s",
        f"{report['core_microseconds_per_agent_step']:,.1f} core-us of the learner's processes per agent step, ingest included",
        f"{settings['network']['torso']}, batch {learner['batch_size']} over {learner['shards']} shard(s), "
        f"{settings['actor']['count']} feeder(s); {hardware['processor']}; {report['date']}",
    ):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
