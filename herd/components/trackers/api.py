"""The interface of a tracker, and the names of a point's numbers: ``episode_return/mean``, ``tasks/pong/episodes``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.files import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

STEP = "env_frames"
"""Horizontal axis of all curves."""
_RETURN = "episode_return_mean_100"
_PROGRESS = frozenset(
    {STEP, "agent_steps", "learner_updates", "episodes", "wall_seconds", "frames_per_second", "policy_lag_mean", "policy_lag_max"}
)
"""Numbers of a point about how far and how fast a run is; the other ones describe what is learned."""

_ID_FILE = "id"
_MAX_ID_BYTES = 1024
"""Size limit of this file; an id has a few letters."""


@dataclass
class Run:
    """What a tracker knows of the run."""

    directory: Path
    """Of the agent's files."""
    name: str
    config: Mapping[str, Any]
    """All settings, as in JSON."""
    stop_reason: str = ""
    """Why a tracker has ended the run; empty if none has."""

    def stop(self, reason: str) -> None:
        """End the run as if it had reached its stop condition: with a checkpoint and a report, which gives the reason."""
        self.stop_reason = self.stop_reason or " ".join(str(reason).split()) or "no reason given"


class Tracker:
    """Receives what happens in a run; whatever it leaves out does nothing.

    Each tracker has a thread of its own, so all methods may wait. If one raises an error, the learner logs a line and goes on.
    """

    def on_point(self, point: Mapping[str, Any]) -> None:
        """A point of metrics.jsonl was written."""

    def on_checkpoint(self, directory: Path) -> None:
        """A checkpoint was written."""

    def on_end(self) -> None:
        """The session has ended; its report.json and its last checkpoint are written."""


def kept_id(folder: Path, make: Callable[[], str]) -> str:
    """Return the id in the file ``folder``/id, so that a resumed run continues its own curves; write a new one if there is none."""
    try:
        return read_file(folder / _ID_FILE, _MAX_ID_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        folder.mkdir(exist_ok=True)
        made = make()
        replace_file(folder / _ID_FILE, f"{made}\n")
        return made


def scalars(point: Mapping[str, Any]) -> dict[str, float]:
    """Return every finite number of a point, with the returns first. Nulls, texts and booleans are left out; list indices start at 1.

    Viewers sort groups by name, so the groups are named such that the returns come first there too.
    """
    tasks = point.get("tasks", {})
    named: dict[str, Any] = {"episode_return/mean": point.get(_RETURN)}
    if len(tasks) > 1:
        named |= {f"episode_return/{task}": numbers.get(_RETURN) for task, numbers in tasks.items()}
    named["tasks"] = {task: {key: value for key, value in numbers.items() if key != _RETURN} for task, numbers in tasks.items()}
    for key, value in point.items():
        if key not in {_RETURN, "tasks"}:
            named[_path(key, value)] = value
    return {path: number for key, value in named.items() for path, number in _numbers(key, value)}


def _path(key: str, value: object) -> str:
    if isinstance(value, dict | list):
        return key
    for group in ("loss", "human_normalised"):
        if key.startswith(f"{group}_"):
            return f"{group}/{key.removeprefix(f'{group}_')}"
    return f"run/{key}" if key in _PROGRESS else f"learning/{key}"


def _numbers(path: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(f"{path}/{key}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value, start=1):
            yield from _numbers(f"{path}/{number}", inner)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield path, float(value)
