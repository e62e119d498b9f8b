"""The journals of a run: metrics.jsonl, the points of its learning curve, and evaluation.jsonl, the versions that were evaluated.

Each has one writer, which appends whole lines. A restarted learner continues from its newest checkpoint, so the lines that were written
after that checkpoint are superseded; readers leave them out.
"""

from __future__ import annotations

import json
import logging
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from herd.files import (
    MAX_JOURNAL_BYTES,
    FileError,
    append_line,
    mapping,
    open_file,
    parse_json,
    read_lines,
    read_record,
    read_sealed,
    replace_file,
)
from herd.run.paths import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluation.jsonl"
BANDIT_STATES = ("bandit/state.json", "bandit/state.previous.json")
"""Files of the bandit's state, newest first."""
MAX_METRICS_BYTES = 64 << 20
"""Size of metrics.jsonl at which it is thinned. Points of 57 tasks take 6 kB each, so with one every 10 s this happens every 30 hours."""
_TAIL_BYTES = 65_536
"""Bytes that are searched for the newest point. A point with 57 tasks takes 6 kB."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EvaluationPoint:
    """The evaluation of one version."""

    lineage: int
    learner_updates: int
    means: Mapping[str, float]
    """Mean return over whole games, by task."""
    standard_errors: Mapping[str, float]
    """Standard error of the mean, by task; without tasks of which only one game was played."""


def add_point(directory: Path, point: Mapping[str, Any], max_bytes: int = MAX_METRICS_BYTES) -> None:
    """Append a point to the learning curve. A file that has grown beyond ``max_bytes`` loses about half of its points.

    Raises:
        OSError: the point cannot be written, or the file cannot be thinned, which is tried again after the next point.

    """
    path = directory / METRICS
    append_line(path, json.dumps(point))
    if path.stat().st_size > max_bytes:
        with suppress(FileError):  # a damaged file is left to the user
            replace_file(path, (json.dumps(kept).encode() + b"\n" for kept in _thinned(path)))


def _thinned(path: Path) -> Iterator[dict[str, Any]]:
    """Yield points at least two mean intervals apart in running time, so that old and new ones stay equally dense; and the newest."""
    count, seconds, before = 0, 0.0, math.inf
    for point in read_lines(path, "a point of a curve", _checked):
        seconds += max(0.0, point["wall_seconds"] - before)
        before = point["wall_seconds"]
        count += 1
    interval, at = 2 * seconds / max(1, count - 1), -math.inf
    for number, point in enumerate(read_lines(path, "a point of a curve", _checked), start=1):
        # A point at an earlier time than the one before shows a resumption, which readers need to see.
        if number == count or not at <= point["wall_seconds"] < at + interval * (1 - 1e-9):
            at = point["wall_seconds"]
            yield point


def read_points(directory: Path) -> list[dict[str, Any]]:
    """Read the points of a learning curve in order, without superseded ones.

    Raises:
        FileError: the file cannot be read, contains no points yet, or a line is no point; one line.

    """
    path = directory / METRICS
    points = without_superseded(read_lines(path, "a point of a curve", _checked), _is_resumption)
    if not points:
        raise FileError(f"{path} contains no points yet")
    return points


def stream_points(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the points as `read_points`, with one in memory at a time. The file is read twice; lines added meanwhile are left out.

    Raises:
        FileError: see `read_points`.

    """

    def lines() -> Iterator[dict[str, Any]]:
        return read_lines(directory / METRICS, "a point of a curve", _checked)

    places = ({"index": index, **{name: point[name] for name in _COUNTERS}} for index, point in enumerate(lines()))
    kept = {place["index"] for place in without_superseded(places, _is_resumption)}
    yield from (point for index, point in enumerate(lines()) if index in kept)


def newest_point(directory: Path) -> dict[str, Any]:
    """Return the newest point of a learning curve; empty if there is none.

    Raises:
        FileError: the file cannot be read, or its last whole line is no point.

    """
    path = directory / METRICS
    try:
        with open_file(path, MAX_JOURNAL_BYTES) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    newest = next((line for line in reversed(lines) if line.endswith(b"\n")), None)
    if newest is None:
        if size:
            raise FileError(f"{path}: contains no whole line yet")
        return {}
    try:
        return _checked(parse_json(newest))
    except ValueError as error:
        raise FileError(f"{path}: its last line is not a point of a curve: {' '.join(str(error).split())[:200]}") from error


def read_report(directory: Path) -> Mapping[str, Any]:
    """Return the report that an agent's learner writes at its end; empty if there is none.

    Raises:
        FileError: it cannot be read.

    """
    try:
        return read_record(directory / REPORT, "a report", mapping)
    except FileNotFoundError:
        return {}


def best_inverse_temperatures(run_dir: Path) -> dict[tuple[int, str], tuple[float, float] | None]:
    """Return the best range of 1/tau by agent and task, from the newest intact state of a run's bandit; empty if there is none.

    A task without any return so far has None. A damaged state is passed over with a line in the log.
    """
    for name in BANDIT_STATES:
        try:
            best = {
                (each["agent"], each["task"]): each["best_inverse_temperatures"]
                for each in parse_json(read_sealed(run_dir / name))["bandits"]
            }
            return {key: None if bounds is None else (float(bounds[0]), float(bounds[1])) for key, bounds in best.items()}
        except FileNotFoundError:
            continue
        except FileError as error:
            _log.warning("%s; it is passed over", error)
        except (ValueError, LookupError, TypeError):
            _log.warning("%s: is not a state of a bandit; it is passed over", run_dir / name)
    return {}


def number_in(record: Mapping[str, Any], key: str) -> float | None:
    """Return a number of a point; None if it is missing or something else, because the file may be damaged."""
    value = record.get(key)
    return value if _is_finite(value) else None


def mapping_in(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a mapping of a point; empty if it is missing or something else."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def frames_at(directory: Path, learner_updates: int) -> int | None:
    """Return the env frames of a run or an agent at ``learner_updates``; None if its learning curve is missing or too short."""
    before = (0, 0.0)
    try:
        for point in stream_points(directory):
            updates = point.get("learner_updates")
            if not isinstance(updates, int):
                continue
            if updates >= learner_updates:
                share = (learner_updates - before[0]) / max(1, updates - before[0])
                return round(before[1] + share * (float(point["env_frames"]) - before[1]))
            before = (updates, float(point["env_frames"]))
    except FileError:
        pass
    return None


def read_evaluations(directory: Path) -> list[EvaluationPoint]:
    """Read the evaluations of a run or an agent in order; empty if there is no file. Superseded evaluations are left out.

    Raises:
        FileError: the file cannot be read, or a line is no evaluation; one line.

    """
    path = directory / EVALUATIONS
    if not os.path.lexists(path):
        return []
    # Superseded: the run was restored from an older checkpoint, or this version was evaluated again.
    return without_superseded(read_lines(path, "an evaluation", _evaluation), lambda old, new: old.learner_updates >= new.learner_updates)


def without_superseded(lines: Iterable[_T], supersedes: Callable[[_T, _T], bool]) -> list[_T]:
    """Drop each line that a later one supersedes, which means that ``supersedes(old, new)`` is true."""
    kept: list[_T] = []
    for line in lines:
        while kept and supersedes(kept[-1], line):
            kept.pop()
        kept.append(line)
    return kept


_COUNTERS = ("env_frames", "wall_seconds")
"""Both continue from the checkpoint, so a decrease of either one shows a resumption."""


def _is_resumption(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(old[name] > new[name] for name in _COUNTERS)


def _checked(point: Any) -> dict[str, Any]:
    if not isinstance(point, dict) or not all(_is_finite(point.get(name)) for name in _COUNTERS):
        raise ValueError("it has no env_frames and wall_seconds")
    return point


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _evaluation(record: dict[str, Any]) -> EvaluationPoint:
    tasks = record["tasks"]
    return EvaluationPoint(
        lineage=int(record["lineage"]),
        learner_updates=int(record["learner_updates"]),
        means={name: float(task["mean"]) for name, task in tasks.items() if task["mean"] is not None},
        standard_errors={name: float(task["standard_error"]) for name, task in tasks.items() if task.get("standard_error") is not None},
    )
