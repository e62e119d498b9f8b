"""The reports of ``herd bench fan-in`` and ``fan-out`` as tables for people, within 80 columns. The JSON object has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OTHER_PROGRAMS = 0.1
"""Cores that other programs used: beyond these, a figure says little of a quiet machine."""


def print_fan_in(measured: Mapping[str, object], console: Console | None = None) -> None:
    """Print what `herd.bench.fan.fan_in_report.make_fan_in_report` made."""
    report = cast("Mapping[str, Any]", measured)
    receiver, loss, memory, counts = report["receiver"], report["loss"], report["memory"], report["unrolls_by_actor"]["measured"]
    threads = receiver["thread_cpu_microseconds_per_unroll"]
    rows = [
        ("actors", f"{report['actors']:,}, all said hello after {report['hello_seconds']:.1f} s"),
        ("unrolls/s", f"{report['unrolls_per_second']:,.0f} of {_offered(report)}, {report['unrolls_per_message']} per message"),
        ("env frames/s", f"{report['frames_per_second']:,.0f}"),
        ("received", f"{report['bytes_per_second'] / 1e6:,.0f} MB/s, {report['bytes_per_unroll']:,} bytes per unroll as arrays"),
        ("receiver", f"{_number(receiver['cpu_microseconds_per_unroll'])} core-us per unroll, {receiver['cores']:.2f} cores"),
        ("  of these", ", ".join(f"{name.replace('_', ' ')} {_number(cost)}" for name, cost in threads.items())),
        ("simulated actors", f"{_number(report['simulated_actors']['cpu_microseconds_per_unroll'])} core-us per unroll"),
        ("sent, consumed", f"{loss['unrolls_sent']:,}, {loss['unrolls_consumed']:,}: {'exact' if loss['is_exact'] else 'NOT EXACT'}"),
        ("broken connections", f"{loss['connections_broken']:,}; {loss['unrolls_resent']:,} unrolls sent again"),
        ("memory", _memory(memory)),
        ("queue", f"{memory['queue_bytes'] / 2**20:.1f} MiB of {memory['queue_bound_bytes'] / 2**20:.1f} at most"),
        ("unrolls per actor", f"least {counts['min']:g}, median {counts['median']:g}, most {counts['max']:g}"),
    ]
    _print(rows, _fan_in_conclusions(report), console)


def print_fan_out(measured: Mapping[str, object], console: Console | None = None) -> None:
    """Print what `herd.bench.fan.fan_out_report.make_fan_out_report` made."""
    report = cast("Mapping[str, Any]", measured)
    rows = [
        ("clients", f"{report['actors']:,} of servers {' > '.join(map(str, report['levels']))}"),
        ("a version", f"{report['version_bytes'] / 1e6:.2f} MB in {report['slices']} slices"),
    ]
    for version in report["versions"]:
        delays = f"{version['median_seconds']:.2f}, {version['p99_seconds']:.2f}, {version['worst_seconds']:.2f} s"
        rows.append((f"version {version['updates']}", f"median, p99, worst {delays}{'' if version['is_complete'] else ', NOT ALL'}"))
    for phase in ("quiet", "publishing"):
        rates = report[phase]
        asked = f"{rates['requests_per_second']:,.0f} requests/s, {rates['weights_per_second']:,.0f} with weights"
        rows.append((phase, f"{asked}, {rates['bytes_per_second'] / 1e6:,.0f} MB/s, servers {rates['servers_cores']:.2f} cores"))
    rows.append(("not modified", f"{_number(report['cpu_microseconds_per_not_modified'])} core-us of its server"))
    rows.append(("weights", f"{_number(report['cpu_microseconds_per_weights'])} core-us of its server"))
    rows += [(server["name"], f"{server['bytes_out'] / 1e9:.2f} GB out, memory {_memory(server)}") for server in report["servers"]]
    clients = report["clients"]
    rows.append(("versions seen", f"{clients['went_back']} went back, {clients['in_part']} were in part, {clients['malformed']} malformed"))
    _print(rows, _remarks(report, report["publishing"]), console)


def _fan_in_conclusions(report: Mapping[str, Any]) -> list[str]:
    most = report["receiver"]["busiest_thread_unrolls_per_core_second"]
    frames = report["receiver"]["busiest_thread_frames_per_core_second"]
    capacity = (
        [f"the receiver's busiest thread would fill a core of its own at {most:,.0f} unrolls/s, {frames:,.0f} frames/s"] if most else []
    )
    return [*capacity, *_remarks(report, report)]


def _remarks(report: Mapping[str, Any], busy: Mapping[str, Any]) -> list[str]:
    hardware, others = report["hardware"], busy["busy_cores_of_other_programs"]
    where = f"{hardware['processor']}, {hardware['usable_cores']} cores for everything; python {hardware['python']}; {report['date']}"
    warning = [f"other programs used {others:.1f} cores meanwhile: on a quiet machine this looks better"] if others > OTHER_PROGRAMS else []
    return [*warning, where]


def _print(rows: Iterable[tuple[str, str]], conclusions: Iterable[str], console: Console | None) -> None:
    console = console if console is not None else Console()
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in rows:
        table.add_row(name, text)
    console.print(table, highlight=False)
    for line in conclusions:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _offered(report: Mapping[str, Any]) -> str:
    offered = report["offered_unrolls_per_second"]
    return "all it can" if offered is None else f"{offered:,.0f} {'played' if report['paced'] else 'that may be taken'}"


def _memory(sizes: Mapping[str, float]) -> str:
    before, after, peak = (sizes[name] / 2**20 for name in ("before_bytes", "after_bytes", "peak_bytes"))
    return f"{before:,.0f} MiB before, {after:,.0f} after, {peak:,.0f} at most"


def _number(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:,.0f}"
