"""Reads RUN/bandit/history.jsonl as arrays: the tile values of a task's bandits, and the temperatures that they chose.

Records that were superseded after a restart from an older state are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from herd.files import read_lines
from herd.run.journals import without_superseded
from herd.view.plots.history import PlotError

if TYPE_CHECKING:
    from pathlib import Path

    from herd.view.plots.averaging import FloatArray

BanditAxis = Literal["env_frames", "episodes"]
HISTORY = "bandit/history.jsonl"
_PER_TILE = ("values", "reports", "handed_out")
_LONGEST_LIST = 8
"""Largest number of task names in a message."""


@dataclass(frozen=True, slots=True)
class BanditHistory:
    """P records of K tiles in time order."""

    task: str
    edges: FloatArray
    """Edges of the tiles in 1/tau, [K + 1]."""
    env_frames: FloatArray
    """Env frames of this task's games counted so far, [P]."""
    episodes: FloatArray
    """Number of games counted so far, [P]."""
    values: FloatArray
    """Mean values over the bandits, [P, K]."""
    reports: FloatArray
    """Number of games counted so far by tile, [P, K]."""
    handed_out: FloatArray
    """Number of temperatures chosen so far by tile, [P, K]."""

    def x(self, axis: BanditAxis) -> FloatArray:
        """Return the values of an axis, [P], never decreasing."""
        return self.env_frames if axis == "env_frames" else self.episodes


def read_bandit_history(run_dir: Path, *, task: str | None = None, agent: int = 0) -> BanditHistory:
    """Read the records of one task; ``task`` may be omitted if there is only one.

    Raises:
        PlotError: there is no history, task or agent, there are several tasks, or the file cannot be read; one line.

    """
    path = run_dir / HISTORY
    records = [record for record in _read_records(path) if record["agent"] == agent]
    tasks = list(dict.fromkeys(str(record["task"]) for record in records))
    if not records:
        raise PlotError(f"{path} contains no records of agent {agent} yet")
    if task is None and len(tasks) > 1:
        raise PlotError(f"{path} has records of {len(tasks)} tasks; choose one with --task: {_listed(tasks)}")
    task = task or tasks[0]
    if task not in tasks:
        raise PlotError(f"{path} contains no records of {task}; it has records of {_listed(tasks)}")
    kept = without_superseded(
        (record for record in records if record["task"] == task), lambda old, new: bool(old["episodes"] >= new["episodes"])
    )
    # Records from before a resumption with other tiles cannot be drawn in the same picture.
    kept = [record for record in kept if record["edges"] == kept[-1]["edges"]]
    return BanditHistory(
        task,
        np.array(kept[-1]["edges"], np.float64),
        *(np.array([record[name] for record in kept], np.float64) for name in ("env_frames", "episodes", *_PER_TILE)),
    )


def _read_records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise PlotError(
            f"no such file: {path} (runs with loss.kind dice write it when games have ended, except with the ablation baseline)"
        )
    return list(read_lines(path, "a record of a bandit", _checked))


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    num_tiles = len(record["edges"]) - 1
    for name in _PER_TILE:
        if len(record[name]) != num_tiles:
            raise ValueError(f"{len(record[name])} {name} for {num_tiles} tiles")
    for name in ("agent", "task", "env_frames", "episodes"):
        _ = record[name]
    return record


def _listed(tasks: list[str]) -> str:
    shown = ", ".join(tasks[:_LONGEST_LIST])
    return shown if len(tasks) <= _LONGEST_LIST else f"{shown}, and {len(tasks) - _LONGEST_LIST} more"
