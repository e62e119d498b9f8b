"""What a run is doing while it does not train: what its start waits for, and how far its end is. No input or output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from herd.supervisor.snapshot import ChildState

_MOST_NAMES = 3


def start_phase(children: Sequence[ChildState], answering: Collection[str], *, has_unrolls: bool) -> str:
    """What a run waits for before its first update.

    Args:
        children: all of them.
        answering: names of those that serve their metrics: they have loaded.
        has_unrolls: the learner's queue holds some.

    """
    loading = [child.name for child in children if child.state == "running" and child.name not in answering]
    if loading:
        shown = ", ".join(loading[:_MOST_NAMES])
        more = f" and {len(loading) - _MOST_NAMES} more" if len(loading) > _MOST_NAMES else ""
        return f"starting: {shown}{more} {'load' if len(loading) > 1 else 'loads'}"
    restarting = [child.name for child in children if child.state == "restarting"]
    if restarting:
        return f"starting: {restarting[0]} starts again"
    return "starting: the learner waits for a whole batch" if has_unrolls else "starting: waits for the actors' first unrolls"


def stop_phase(children: Sequence[ChildState]) -> str | None:
    """What a run that was asked to stop waits for; None of one that was not."""
    if not any(child.state in {"stopping", "stopped"} for child in children):
        return None
    alive = [child.name for child in children if child.state == "stopping"]
    if any(name.startswith("learner") for name in alive):
        return "stopping: the learner writes its checkpoint"
    return f"stopping: waits for {', '.join(alive[:_MOST_NAMES])}" if alive else "stopped"
