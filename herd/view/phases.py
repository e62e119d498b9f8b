"""Describes what a run does while it does not train: what its start or its end waits for. No input or output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from herd.launch.readings import ChildState

_MOST_NAMES = 3


def start_phase(children: Sequence[ChildState], answering: Collection[str], *, has_unrolls: bool) -> str:
    """Say what a run waits for before its first update.

    Args:
        children: all children.
        answering: names of the children that serve their metrics, which means that they have loaded.
        has_unrolls: whether the learner's queue contains unrolls.

    """
    loading = [child.name for child in children if child.state == "running" and child.name not in answering]
    if loading:
        shown = ", ".join(loading[:_MOST_NAMES])
        more = f" and {len(loading) - _MOST_NAMES} more" if len(loading) > _MOST_NAMES else ""
        return f"starting: {shown}{more} {'are' if len(loading) > 1 else 'is'} loading"
    restarting = [child.name for child in children if child.state == "restarting"]
    if restarting:
        return f"starting: {restarting[0]} is restarting"
    return "starting: waiting for a whole batch" if has_unrolls else "starting: waiting for the actors' first unrolls"


def stop_phase(children: Sequence[ChildState]) -> str | None:
    """Say what a run that was asked to stop waits for; None if it was not asked."""
    if not any(child.state in {"stopping", "stopped"} for child in children):
        return None
    alive = [child.name for child in children if child.state == "stopping"]
    if any(name.startswith("learner") for name in alive):
        return "stopping: the learner is writing its checkpoint"
    return f"stopping: waiting for {', '.join(alive[:_MOST_NAMES])}" if alive else "stopped"
