"""The summary of all parts as Markdown, made from their JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = list[str]


def write_report(output: Path) -> None:
    """Write OUTPUT/README.md from the parts that there are."""
    parts = {name: json.loads((output / f"{name}.json").read_text()) for name in SECTIONS if (output / f"{name}.json").exists()}
    lines = [
        "# One machine with a GPU",
        "",
        "Made by `make gpu`. Numbers are medians, with the lowest and highest of the repeats in brackets.",
        "",
    ]
    for name, part in parts.items():
        title, heading, row = SECTIONS[name]
        hardware = part["hardware"]
        lines += [f"## {title}", ""]
        lines += [f"{part['date']}, {hardware.get('gpu') or 'no GPU'}, {hardware['usable_cores']} cores ({hardware['processor']}), "]
        lines[-1] += f"torch {hardware['torch']}, Python {hardware['python']}; `{part['command']}` ([JSON]({name}.json))"
        lines += ["", f"| case | {' | '.join(heading)} |", f"| --- |{' --- |' * len(heading)}"]
        for case, numbers in part["cases"].items():
            cells = [numbers["error"].replace("|", "/"), *[""] * (len(heading) - 1)] if "error" in numbers else row(numbers)
            lines.append(f"| {case} | {' | '.join(cells)} |")
        lines.append("")
    output.mkdir(parents=True, exist_ok=True)
    (output / "README.md").write_text("\n".join(lines).rstrip() + "\n")


def between(numbers: dict[str, float], digits: int = 0) -> str:
    """Return a median and its spread."""
    return f"{numbers['median']:,.{digits}f} ({numbers['lowest']:,.{digits}f} - {numbers['highest']:,.{digits}f})"


def share(number: float | None) -> str:
    """Return a share in per cent."""
    return "" if number is None else f"{number:.0%}"


def _test(numbers: dict[str, Any]) -> Row:
    return [numbers["summary"].strip("= ")]


def _network(numbers: dict[str, Any]) -> Row:
    rate = numbers.get("tera_operations_per_second")
    rows = between(numbers["rows_per_second"]) if "rows_per_second" in numbers else ""
    bandwidth = between(numbers["terabytes_per_second"], 2) if "terabytes_per_second" in numbers else ""
    each = f"{numbers['giga_operations_per_row']:.3f}" if "giga_operations_per_row" in numbers else ""
    return [rows, each, "" if rate is None else between(rate, 1), bandwidth]


def _update(numbers: dict[str, Any]) -> Row:
    memory = numbers["device_gigabytes"]
    return [
        between(numbers["trained_steps_per_second"]),
        between(numbers["milliseconds"], 2),
        f"{numbers['host_milliseconds']:.2f}",
        f"{numbers['first_update_seconds']:.1f}",
        "" if memory is None else f"{memory:.2f}",
    ]


def _learner(numbers: dict[str, Any]) -> Row:
    phases = numbers["phase_milliseconds"]
    longest = ", ".join(f"{phase} {phases[phase]:.2f}" for phase in sorted(phases, key=phases.__getitem__, reverse=True)[:4])
    return [
        between(numbers["frames_per_second"]),
        f"{numbers['update_milliseconds']:.2f}",
        longest,
        f"{numbers['core_microseconds_per_agent_step']:.1f}",
    ]


def _run(numbers: dict[str, Any]) -> Row:
    central, cost = numbers.get("inference"), numbers["core_microseconds_per_frame"]
    return [
        between(numbers["frames_per_second"]),
        share(numbers["learner_starved"]),
        share(numbers["gpu_busy"]),
        f"{numbers['policy_lag']:.1f}",
        f"{cost['actor']:.0f}, {cost['learner']:.1f}",
        f"{central['environments_per_batch']:.0f}, {central['round_trip_milliseconds']:.1f}" if central else "",
    ]


SECTIONS: dict[str, tuple[str, list[str], Callable[[dict[str, Any]], Row]]] = {
    "tests": ("Tests", ["result"], _test),
    "networks": ("Networks", ["rows/s", "10^9 operations a row", "10^12 operations/s", "terabytes/s"], _network),
    "updates": ("Updates alone", ["trained steps/s", "ms an update", "of the host, ms", "first update, s", "memory, GB"], _update),
    "learner": ("The learner over the wire", ["frames/s", "ms an update", "longest phases, ms", "core-us a step"], _learner),
    "runs": (
        "Whole runs",
        ["frames/s", "learner starved", "GPU busy", "lag, updates", "core-us a frame: actors, learner", "batch, round trip in ms"],
        _run,
    ),
}
"""Title, headings and row of each part's table."""
