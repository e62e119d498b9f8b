"""Writes the results of a soak: soak.json with everything, soak.md as a table, soak.png as a picture."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.soak.faults import CATALOGUE, KINDS
from benchmarks.soak.memory import growth
from benchmarks.soak.promises import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.soak.monitor import Record
    from benchmarks.soak.soak import Story, Survived

MAX_POINTS = 400
"""Maximum number of points of each series in soak.json, more than a picture can show."""
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The conditions of the soak."""

    command: str
    date: str
    hardware: dict[str, Any]
    seed: int
    settings: list[str]
    """Files and overrides, as given to ``herd train``."""
    seconds: float
    """From the start of the run to the request to end it."""
    exit_code: int | None
    """Exit code of the run after the request to end; None: it had to be killed, or ended before."""
    interrupted: bool


def make_report(
    circumstances: Circumstances, story: Story, record: Record, finals: Sequence[dict[str, Any]], num_snapshots: int
) -> dict[str, Any]:
    """Return everything as one JSON object; ``finals``: the existing report.json files of the agents."""
    return {
        **asdict(circumstances),
        "num_faults": story.num_faults,
        "num_void": story.num_void,
        "promises_broken": names(breach for _, breach in record.breaches),
        "num_breaches": record.num_breaches,
        "breaches": [{"at": round(at, 2), "promise": breach.promise, "detail": breach.detail} for at, breach in record.breaches],
        "by_kind": {kind: row for kind in KINDS if (row := _row(story.events, kind))["faults"]},
        "together": _recoveries(event for event in story.events if len(event.faults) > 1),
        "by_target": _by_target(story.events),
        "ledger": _sum_of_ledgers([final["accounting"] for final in finals]) | {"balanced_snapshots": num_snapshots} if finals else None,
        "env_frames": sum(final["env_frames"] for final in finals) if finals else None,
        "mean_return_last_100": [final["episode_return"]["mean_last_100"] for final in finals],
        "memory": {name: asdict(growth(samples, circumstances.seconds)) for name, samples in record.memory.items()},
        "events": [_event(event) for event in story.events],
        "curve": [asdict(point) for point in _thinned(record.curve)],
        "resident": {name: [[round(s.at, 1), s.pid, s.bytes] for s in _thinned(samples)] for name, samples in record.memory.items()},
    }


def _sum_of_ledgers(ledgers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    dropped: Counter[str] = sum((Counter(ledger["dropped"]) for ledger in ledgers), Counter())
    return {name: sum(ledger[name] for ledger in ledgers) for name in ("generated", "consumed", "in_flight")} | {"dropped": dict(dropped)}


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write soak.json and soak.md."""
    (folder / "soak.json").write_text(json.dumps(report) + "\n")
    (folder / "soak.md").write_text(as_text(report))


def as_text(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    broken = report["promises_broken"]
    lines = [
        f"{report['num_faults']} faults in {report['seconds'] / 60:.1f} minutes, seed {report['seed']}; "
        + (f"**broken: {', '.join(broken)}**" if broken else "every promise kept"),
        "",
        "| fault | what it is | count | recovery: median (worst), s |",
        "| --- | --- | --- | --- |",
        *(f"| {kind} | {CATALOGUE[kind].meaning} | {row['faults']} | {_spread(row)} |" for kind, row in report["by_kind"].items()),
        f"| two at once | | {report['together']['faults']} pairs | {_spread(report['together'])} |",
        "",
    ]
    lines += _ledger_lines(report["ledger"])
    lines += [
        "| process | most, MiB | incarnations | last against second quarter, equal age | within a process, MiB an hour |",
        "| --- | --- | --- | --- | --- |",
        *(_memory_line(name, row) for name, row in report["memory"].items()),
        "",
    ]
    lines += [f"- {breach['at']:.0f} s: {breach['promise']}: {breach['detail']}" for breach in report["breaches"]]
    return "\n".join(lines) + "\n"


def exit_code(report: dict[str, Any]) -> int:
    """Return 0 if every promise was kept."""
    return 1 if report["num_breaches"] else 0


def _row(events: Sequence[Survived], kind: str) -> dict[str, Any]:
    """Return a row for all faults of a kind, with recovery times of those that occurred alone."""
    alone = _recoveries(event for event in events if len(event.faults) == 1 and event.faults[0].kind == kind)
    return alone | {"faults": sum(fault.kind == kind for event in events for fault in event.faults)}


def _recoveries(events: Iterable[Survived]) -> dict[str, Any]:
    found = list(events)
    seconds = [event.recovery_seconds for event in found if event.recovery_seconds is not None]
    return {
        "faults": len(found),
        "measured": len(seconds),
        "median_seconds": round(statistics.median(seconds), 2) if seconds else None,
        "worst_seconds": round(max(seconds), 2) if seconds else None,
        "not_recovered": len(found) - len(seconds),
    }


def _by_target(events: Sequence[Survived]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for event in events:
        for fault in event.faults:
            of_target = counts.setdefault(fault.target, {})
            of_target[fault.kind] = of_target.get(fault.kind, 0) + 1
    return dict(sorted(counts.items()))


def _event(event: Survived) -> dict[str, Any]:
    seconds = event.recovery_seconds
    return {
        "at": round(event.at, 2),
        "faults": [asdict(fault) for fault in event.faults],
        "recovery_seconds": None if seconds is None else round(seconds, 2),
        "missing": list(event.missing),
    }


def _spread(row: dict[str, Any]) -> str:
    if row["median_seconds"] is None:
        return "-"
    lost = f", {row['not_recovered']} not" if row["not_recovered"] else ""
    return f"{row['median_seconds']:.1f} ({row['worst_seconds']:.1f}){lost}"


def _ledger_lines(ledger: dict[str, Any] | None) -> list[str]:
    if ledger is None:
        return ["The run left no report.", ""]
    generated = max(1, ledger["generated"])
    dropped = ", ".join(f"{reason} {count:,} ({count / generated:.2%})" for reason, count in ledger["dropped"].items()) or "nothing"
    return [
        f"Frames: generated {ledger['generated']:,}, consumed {ledger['consumed']:,}, in flight {ledger['in_flight']:,}; lost: {dropped}. "
        f"{ledger['balanced_snapshots']} snapshots of the ledger were checked.",
        "",
    ]


def _memory_line(name: str, row: dict[str, Any]) -> str:
    between = f"{row['between_quarters']:+.2%} ({row['compared_samples']} samples)" if row["between_quarters"] is not None else "-"
    slope = f"{row['slope_bytes_per_hour'] / _MEGABYTE:+.1f}" if row["slope_bytes_per_hour"] is not None else "-"
    return f"| {name} | {row['most_bytes'] / _MEGABYTE:.0f} | {row['incarnations']} | {between} | {slope} |"


def _thinned(series: Sequence[Any]) -> Sequence[Any]:
    step = -(-len(series) // MAX_POINTS)
    return series[:: max(1, step)]
