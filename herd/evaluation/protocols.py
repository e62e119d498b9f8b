"""Evaluation protocols of papers by name, each with the settings of its games and its requirements for training.

A protocol *plays* a frozen policy, or uses the *returns of training* at a number of frames. Its requirements for training cannot be met
afterwards: a run that violates one (``needed``) is refused, and any other difference (``trained``) is reported with the scores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.components.suites import environment_spec
from herd.config.errors import close_match
from herd.files import FileError
from herd.run.journals import read_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from herd.components.suites import SuiteSettings


class EvaluationError(Exception):
    """A run cannot be played or scored; one line."""


FRAMES_PER_HOUR = 216_000
"""Frames per hour of a console at 60 Hz."""


@dataclass(frozen=True, slots=True)
class LastEpisodes:
    """The newest games of training at a number of frames."""

    episodes: int


@dataclass(frozen=True, slots=True)
class LastFrames:
    """The games of training that ended within so many frames before a number of frames."""

    frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol of evaluation."""

    name: str
    suite: str
    says: str
    """One line: what is averaged, and the paper."""
    episodes: int = 0
    """Number of games per task that are played."""
    training: LastEpisodes | LastFrames | None = None
    """The games of training that count; None: games are played."""
    played: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ``env`` for the played games."""
    trained: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ``env`` that the paper trained with. They stay as they are in the run."""
    unlike: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ``env`` with values that make the games others than the paper's."""
    needed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ``env`` that a run must have to be scored by this protocol."""

    @property
    def words(self) -> list[str]:
        """Return ``played`` as words of a command line."""
        return [word for name, value in self.played.items() for word in (f"--env.{name}", json.dumps(value))]

    def applied(self, env: SuiteSettings) -> SuiteSettings:
        """Return ``env`` with the settings of the played games."""
        return type(env).model_validate(env.model_dump() | dict(self.played))

    def objection(self, env: SuiteSettings) -> str | None:
        """Say why a run that was trained in ``env`` cannot be scored by this protocol; None if it can."""
        if env.suite != self.suite:
            return f"{self.name} is a protocol of suite {self.suite}, not of {env.suite}"
        for name, value in self.needed.items():
            if getattr(env, name) != value and not self._is_the_same(env, name, value):
                return f"{self.name} needs env.{name} {value}, but the run has {getattr(env, name)}, which cannot be changed after training"
        return None

    @staticmethod
    def _is_the_same(env: SuiteSettings, name: str, value: object) -> bool:
        """Whether another value gives the same spaces. For example, the minimal actions of some games are all 18 actions."""
        return name in env.makes_spaces and environment_spec(env.model_copy(update={name: value})) == environment_spec(env)

    def differences(self, env: SuiteSettings) -> tuple[str, ...]:
        """List the settings that differ from the paper in this run, as ``env.name value (the paper: value)``."""
        return (
            *(
                f"env.{name} {_said(getattr(env, name))} (the paper: {_said(value)})"
                for name, value in self.trained.items()
                if getattr(env, name) != value
            ),
            *(f"env.{name} {_said(value)} (not in the paper)" for name, value in self.unlike.items() if getattr(env, name) == value),
        )


_THIRTY_MINUTES, _FIVE_MINUTES = FRAMES_PER_HOUR // 2, FRAMES_PER_HOUR // 12
_STICKY = {"sticky_action_probability": 0.25, "noop_max": 0, "fire_on_reset": False}
_WHOLE_GAMES = {"life_loss_ends_episode": False}

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        protocol.name: protocol
        for protocol in (
            Protocol(
                name="impala-atari",
                suite="atari",
                says="mean of 200 games, 1..30 no-ops, at most 108,000 frames (IMPALA, arXiv:1802.01561, section 5.3.2)",
                episodes=200,
                played={
                    "noop_max": 30,
                    "sticky_action_probability": 0.0,
                    "fire_on_reset": False,
                    "max_episode_frames": _THIRTY_MINUTES,
                    "max_frames_without_reward": None,
                },
                trained={"action_repeat": 4},
            ),
            Protocol(
                name="impala-dmlab",
                suite="dmlab",
                says="mean of 500 games on held-out levels (IMPALA, arXiv:1802.01561, table 3)",
                episodes=500,
                played={"hold_out": True, "level_seeds": None},
                trained={"action_repeat": 4},
                unlike={"dataset_path": "dummy"},
            ),
            Protocol(
                name="laser-atari",
                suite="atari",
                says="mean of the last 100 games of training at 50M or 200M frames (LASER, arXiv:1909.11583, appendix D)",
                training=LastEpisodes(100),
                trained={"noop_max": 37, "sticky_action_probability": 0.0, "action_repeat": 4, "max_episode_frames": _THIRTY_MINUTES},
            ),
            Protocol(
                name="machado",
                suite="atari",
                says="mean of 100 games, sticky actions 0.25, all 18 actions, at most 18,000 frames (Machado et al., arXiv:1709.06009)",
                episodes=100,
                played={**_STICKY, "max_episode_frames": _FIVE_MINUTES, "max_frames_without_reward": None},
                trained={"action_repeat": 5, **_WHOLE_GAMES},
                needed={"action_set": "full"},
            ),
            Protocol(
                name="saber",
                suite="atari",
                says="mean of 100 games, sticky actions 0.25, all 18 actions, at most 100 hours, ended after five minutes without a reward "
                "(Toromanoff et al. 2019, arXiv:1908.04683)",
                episodes=100,
                played={**_STICKY, "max_episode_frames": 100 * FRAMES_PER_HOUR, "max_frames_without_reward": _FIVE_MINUTES},
                trained={"action_repeat": 4, **_WHOLE_GAMES},
                needed={"action_set": "full"},
            ),
            Protocol(
                name="dopamine",
                suite="atari",
                says="mean of the games of training that ended within a million frames, sticky actions 0.25 (Dopamine, arXiv:1812.06110)",
                training=LastFrames(1_000_000),
                trained={"noop_max": 0, "action_repeat": 4, "max_episode_frames": _THIRTY_MINUTES, **_WHOLE_GAMES},
                needed={"sticky_action_probability": 0.25},
            ),
        )
    }
)


def protocol_named(name: str) -> Protocol:
    """Return a protocol by name.

    Raises:
        EvaluationError: there is no protocol of this name.

    """
    if name not in PROTOCOLS:
        raise EvaluationError(f"{name}: no such protocol{close_match(name, list(PROTOCOLS))}; available are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def _said(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


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
    except FileError as error:
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
