"""Prints a release: the run's numbers as in the local view, then components, then pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from herd.cli.consoles import table_console
from herd.kube.pods import worst_first
from herd.view.terminal import facts, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from herd.cli.release_picture import ComponentRow, MemberRow, PodRow, ReleasePicture, Version

_MOST_PODS = 12
"""Largest number of pods of a component that are listed one by one."""


def print_release(picture: ReleasePicture, *, show_all: bool, console: Console | None = None) -> None:
    """Print a picture. ``show_all``: list every pod; otherwise a selection that begins with pods in trouble."""
    console = table_console(console)
    release = picture.release
    console.print(Text.assemble((release.name, "bold"), f" in namespace {release.namespace}"))
    if picture.learners_answer:
        for part in facts(picture.run):
            console.print(part, highlight=False)
        console.print(
            f"frames count from the start of the learner; waits are those of {picture.actors_asked} of {_actors(picture):,} actors",
            style="dim",
        )
    if picture.members:
        console.print()
        console.print(_member_table(picture.members), highlight=False)
    console.print()
    console.print(_component_table(picture.components), highlight=False)
    console.print()
    console.print(_pod_table(picture, show_all=show_all), highlight=False)
    for note in picture.notes:
        console.print(Text(note, style="yellow"), soft_wrap=True)


def age(seconds: float | None) -> str:
    """Return a duration in kubectl's style: ``45s``, ``12m``, ``3h20m``, ``5d3h``."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    first = next((index for index, (value, _) in enumerate(units) if value), 3)
    if units[first][0] >= 10:
        return f"{units[first][0]}{units[first][1]}"
    return "".join(f"{value}{letter}" for value, letter in units[first : first + 2] if value) or "0s"


def _member_table(members: Sequence[MemberRow]) -> Table:
    table = _table("member", "fitness", "settings")
    for member in members:
        settings = ", ".join(f"{key.rpartition('.')[2]} {value:.3g}" for key, value in sorted(member.settings.items()))
        table.add_row(str(member.agent), number(member.fitness, 2), settings)
    return table


def _component_table(rows: Sequence[ComponentRow]) -> Table:
    table = _table("component", "ready", "restarts", "pods")
    for row in rows:
        good = row.ready == row.wanted
        states = ", ".join(f"{times:,} {state}" for state, times in sorted(row.states.items(), key=lambda item: -item[1]))
        table.add_row(
            row.component, Text(f"{row.ready:,}/{row.wanted:,}", style="green" if good else "yellow"), f"{row.restarts:,}", states or "-"
        )
    return table


def _pod_table(picture: ReleasePicture, *, show_all: bool) -> Table:
    table = _table("pod", "rank", "state", "restarts", "weights", "held for", "age", "node", "")
    for component in picture.components:
        rows = [row for row in picture.rows if row.pod.component == component.component]
        shown = rows if show_all or len(rows) <= _MOST_PODS else _chosen(rows)
        for row in shown:
            pod, version = row.pod, row.version
            table.add_row(
                pod.name,
                number(pod.rank),
                Text(pod.state if pod.ready or pod.state != "Running" else "not ready", style="" if pod.ready else "yellow"),
                str(pod.restarts),
                _version(version),
                age(None if version is None else version.age_seconds),
                age(pod.age_seconds(picture.taken)),
                pod.node or "-",
                Text(pod.trouble, style="dim"),
            )
        if len(shown) < len(rows):
            table.add_row(f"and {len(rows) - len(shown):,} more (--all)", *[""] * 8)
    return table


def _chosen(rows: Sequence[PodRow]) -> list[PodRow]:
    """Return pods in trouble first, then the pods that were asked for metrics."""
    by_name = {row.pod.name: row for row in rows}
    troubled = [by_name[pod.name] for pod in worst_first(row.pod for row in rows) if not pod.ready or pod.restarts]
    asked = [row for row in rows if row.version is not None]
    return list({row.pod.name: row for row in [*troubled, *asked, *rows]}.values())[:_MOST_PODS]


def _version(version: Version | None) -> str:
    return "-" if version is None else f"{version.lineage}.{version.learner_updates}"


def _actors(picture: ReleasePicture) -> int:
    return sum(row.pod.component == "actor" for row in picture.rows)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=name in {"pod", "ready", "age", "weights"})
    return table
