"""Scores that protocols take from training: mean returns of the games that actors played during learning.

They come from the points of the learning curve (metrics.jsonl), so the ends of a window are the nearest points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from herd.evaluation.errors import EvaluationError
from herd.evaluation.protocols import LastEpisodes
from herd.files import JournalError
from herd.run.journals import read_points

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.evaluation.protocols import LastFrames


class TrainingScore(NamedTuple):
    """One task of one run."""

    mean: float
    episodes: int
    """Number of games in the mean."""
    env_frames: int
    """Env frames of the task at the end of the window."""
    learner_updates: int


class _Point(NamedTuple):
    env_frames: int
    episodes: int
    mean_100: float | None
    total: float | None
    learner_updates: int


def training_scores(
    directory: Path, tasks: Sequence[str], window: LastEpisodes | LastFrames, frames: int | None
) -> dict[str, TrainingScore]:
    """Score each of ``tasks`` at ``frames`` of its env frames (None: at the end of the run).

    Raises:
        EvaluationError: the curve cannot be read, has too few frames, or the window contains no game; one line.

    """
    try:
        points = read_points(directory)
    except JournalError as error:
        raise EvaluationError(str(error)) from error
    return {task: _score(directory, task, _of_task(points, task, only=len(tasks) == 1), window, frames) for task in tasks}


def _of_task(points: Sequence[dict[str, Any]], task: str, *, only: bool) -> list[_Point]:
    found = []
    for point in points:
        own = (point.get("tasks") or {}).get(task, point if only else {})
        if isinstance(own.get("env_frames"), int) and isinstance(own.get("episodes"), int):
            mean, total = own.get("episode_return_mean_100"), own.get("episode_return_sum")
            found.append(_Point(own["env_frames"], own["episodes"], mean, total, int(point.get("learner_updates", 0))))
    return found


def _score(directory: Path, task: str, points: Sequence[_Point], window: LastEpisodes | LastFrames, frames: int | None) -> TrainingScore:
    reached = points[-1].env_frames if points else 0
    if not points or (frames is not None and reached < frames):
        raise EvaluationError(f"{directory}: {task} was trained for {reached:,} frames, fewer than {frames or 1:,}")
    # The first point at which the frames were reached. It is late by at most one interval of the curve.
    end = points[-1] if frames is None else next(point for point in points if point.env_frames >= frames)
    if isinstance(window, LastEpisodes):
        if end.mean_100 is None:
            raise EvaluationError(f"{directory}: no game of {task} had ended by {end.env_frames:,} frames")
        return TrainingScore(end.mean_100, min(window.episodes, end.episodes), end.env_frames, end.learner_updates)
    start_at = end.env_frames - window.frames
    if start_at < 0:
        raise EvaluationError(f"{directory}: {task} was trained for {reached:,} frames, fewer than the window of {window.frames:,}")
    start = next((point for point in reversed(points) if point.env_frames <= start_at), _Point(0, 0, None, 0.0, 0))
    if end.total is None or start.total is None:
        raise EvaluationError(f"{directory}: the curve has no sums of returns (episode_return_sum), which {task} needs")
    episodes = end.episodes - start.episodes
    if episodes < 1:
        raise EvaluationError(f"{directory}: no game of {task} ended between {start.env_frames:,} and {end.env_frames:,} frames")
    return TrainingScore((end.total - start.total) / episodes, episodes, end.env_frames, end.learner_updates)
