"""The statistics of a run: points of the learning curve and report.json. Env frames are counted at consumption."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from herd.components.suites.scores import human_normalised
from herd.protocols.bandit.tiling import inverse_temperature_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.components.suites.scores import ReferenceScores
    from herd.contract.spaces import EnvSpec
    from herd.protocols.bandit.tiling import Tiling
    from herd.training.trainer import UpdateStatistics
    from herd_learner.intake.ledger import LedgerSnapshot
    from herd_learner.population.member import FitnessWindow
    from herd_learner.record.replay_account import ReplayAccount

MIN_WINDOW_UNROLLS, MIN_WINDOW_UPDATES = 100, 10
"""Fewest unrolls and updates that a point averages. The first unrolls were made before anything was learned, so that their lag is 0, and
the last window of a run is of any length."""
RETURN_WINDOW = 100
"""Number of games in a reported mean return, the usual number in the literature."""


@dataclass(slots=True)
class TaskStatistics:
    """The statistics of one task."""

    env_frames: int = 0
    episodes: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RETURN_WINDOW))
    first_returns: list[float] = field(default_factory=list)
    """Returns of the first games, at most as many as ``returns`` holds of the last games."""
    return_sum: float = 0.0
    """Sum over all games. The mean over a period is the difference of two such sums divided by the difference of ``episodes``."""
    tiles: dict[int, list[float]] = field(default_factory=dict)
    """By tile: number of games at its temperatures, and the sum of their returns."""

    @property
    def mean_return(self) -> float | None:
        """Mean raw return of the newest games; None before the first game has ended."""
        return math.fsum(self.returns) / len(self.returns) if self.returns else None

    def count_return(self, episode_return: float) -> None:
        """Record the return of a finished game."""
        self.episodes += 1
        self.returns.append(episode_return)
        self.return_sum += episode_return
        if len(self.first_returns) < RETURN_WINDOW:
            self.first_returns.append(episode_return)

    @property
    def progress(self) -> dict[str, float] | None:
        """Mean return of the first and of the last games, equal in number and without overlap; None before two games have ended."""
        games = min(self.episodes // 2, len(self.first_returns), len(self.returns))
        if not games:
            return None
        first, last = self.first_returns[:games], list(self.returns)[-games:]
        return {"games": games, "mean_first": math.fsum(first) / games, "mean_last": math.fsum(last) / games}


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    maximum: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.merge(value, value, 1)

    def merge(self, total: float, maximum: float, count: int) -> None:
        self.total += total
        self.maximum = max(self.maximum, maximum)
        self.count += count

    @property
    def mean(self) -> float:
        return self.total / self.count


@dataclass(slots=True)
class _Window:
    """What the points of the curve average. A window continues until it has ``minimum`` values: fewer say little."""

    minimum: int
    current: _Mean = field(default_factory=_Mean)
    full: _Mean | None = None
    """The newest window that had enough."""

    def close(self, *, is_last: bool) -> _Mean | None:
        """Return the newest full window; None before the first. With ``is_last`` the rest is added to it, or is all there is."""
        if self.current.count >= self.minimum:
            self.full, self.current = self.current, _Mean()
        elif is_last and self.current.count:
            rest = self.current
            if self.full is not None:
                rest.merge(self.full.total, self.full.maximum, self.full.count)
            self.full, self.current = rest, _Mean()
        return self.full


@dataclass(slots=True)
class _Delta:
    """The records of one shard since its last report to shard 0."""

    episodes: list[tuple[int, float, float | None]] = field(default_factory=list)
    consumed: dict[int, list[int]] = field(default_factory=dict)
    """Env frames and unrolls by task."""
    lag: _Mean = field(default_factory=_Mean)


class RunStatistics:
    """Cumulative counters, which survive a restart, and the window since the last point of the curve.

    With several shards, those of the first shard are the run's: it merges the `delta` of the others.
    """

    def __init__(
        self,
        spec: EnvSpec,
        restored: dict[str, Any] | None = None,
        tiling: Tiling | None = None,
        *,
        references: Mapping[str, ReferenceScores] | None = None,
        is_first: bool = True,
    ) -> None:
        """Start at zero, or at ``restored``.

        ``tiling``: the tiles of temperatures, if games draw them. ``references``: human scores by task, as far as known.
        ``is_first``: these are the run's statistics, and their delta is not collected.
        """
        self._references = references or {}
        self.replay: ReplayAccount | None = None
        """The replay statistics; None without replay."""
        self.fitness: FitnessWindow | None = None
        """The member's values; None without a population."""
        self._tiling = tiling
        self._action_repeat = spec.action_repeat
        self.tasks = {name: TaskStatistics() for name in spec.task_names}
        self._names = spec.task_names
        self._recent: deque[float] = deque(maxlen=RETURN_WINDOW)
        self._start_is_logged = False
        self.env_frames = 0
        self.learner_updates = 0
        self._wall_seconds_before = 0.0
        self._lag = _Mean()
        self._lag_window = _Window(MIN_WINDOW_UNROLLS)
        self._last_update: UpdateStatistics | None = None
        self._health: dict[str, Any] | None = None
        self._clipped_window = _Window(MIN_WINDOW_UPDATES)
        self._frames_at_point: int | None = None
        self._num_skipped = 0
        """Since the last point."""
        self.num_skipped_in_a_row = 0
        """Updates skipped since the last one that was taken."""
        self._delta: _Delta | None = None if is_first else _Delta()
        self._session_frames = 0
        self._session_unrolls = 0
        self._session_trained = 0
        if restored is not None:
            self._restore(restored)

    def record_episode(self, task_id: int, episode_return: float, inverse_temperature: float | None = None) -> None:
        """Record a finished game; ``episode_return`` is raw and undiscounted."""
        task = self.tasks[self._names[task_id]]
        task.count_return(episode_return)
        self._recent.append(episode_return)
        if self.fitness is not None:
            self.fitness.add(task_id, episode_return)
        if self._delta is not None:
            self._delta.episodes.append((task_id, episode_return, inverse_temperature))
        if self._tiling is not None and inverse_temperature is not None and inverse_temperature >= 0.0:
            tile = task.tiles.setdefault(self._tiling.tile_of(inverse_temperature), [0, 0.0])
            tile[0] += 1
            tile[1] += episode_return

    def record_consumed(self, task_id: int, num_frames: int, policy_lag: int) -> None:
        """Record an unroll that was trained on; ``policy_lag`` is in learner updates."""
        self._count_consumed(task_id, num_frames, 1)
        self._lag.add(policy_lag)
        self._lag_window.current.add(policy_lag)
        if self._delta is not None:
            counts = self._delta.consumed.setdefault(task_id, [0, 0])
            counts[0] += num_frames
            counts[1] += 1
            self._delta.lag.add(policy_lag)

    def count_update(self, num_unrolls: int = 0) -> None:
        """Count an update, perhaps only queued on the device; ``num_unrolls`` of its batch came from actors."""
        self.learner_updates += 1
        self._session_trained += num_unrolls

    def record_update(self, update: UpdateStatistics) -> None:
        """Record the statistics of an update."""
        self._last_update = update
        self._clipped_window.current.add(float(update.is_clipped))
        self._num_skipped += not update.is_finite
        self.num_skipped_in_a_row = 0 if update.is_finite else self.num_skipped_in_a_row + 1
        if update.health is not None:
            self._health = update.health.as_json()

    def delta(self) -> dict[str, Any] | None:
        """Return the records of this shard since the last call, as JSON; None on the first shard."""
        if self._delta is None:
            return None
        delta, self._delta = self._delta, _Delta()
        lag = delta.lag
        return {
            "episodes": delta.episodes,
            "consumed": [[task_id, *counts] for task_id, counts in delta.consumed.items()],
            "lag": [lag.total, lag.maximum, lag.count],
            "replay": None if self.replay is None else self.replay.delta(),
        }

    def merge(self, delta: dict[str, Any]) -> None:
        """Add the records of another shard."""
        for task_id, episode_return, inverse_temperature in delta["episodes"]:
            self.record_episode(task_id, episode_return, inverse_temperature)
        for task_id, num_frames, num_unrolls in delta["consumed"]:
            self._count_consumed(task_id, num_frames, num_unrolls)
        self._lag.merge(*delta["lag"])
        self._lag_window.current.merge(*delta["lag"])
        if self.replay is not None:
            self.replay.merge(delta["replay"])

    def _count_consumed(self, task_id: int, num_frames: int, num_unrolls: int) -> None:
        self.env_frames += num_frames
        self._session_frames += num_frames
        self._session_unrolls += num_unrolls
        self.tasks[self._names[task_id]].env_frames += num_frames

    @property
    def start_is_due(self) -> bool:
        """Whether 100 games have ended that no point reports yet; their return shows the initial policy."""
        return not self._start_is_logged and len(self._recent) == RETURN_WINDOW

    def logged(self) -> None:
        """Note that a point was logged, here or by the first shard."""
        self._start_is_logged = self._start_is_logged or len(self._recent) == RETURN_WINDOW

    @property
    def last_point_is_due(self) -> bool:
        """Whether a point at the end of the session says more than the last one: frames since, or the only lag of a short run."""
        return self.env_frames != self._frames_at_point or (self._lag_window.full is None and self._lag_window.current.count > 0)

    @property
    def episodes(self) -> int:
        """Games finished, over all tasks."""
        return sum(task.episodes for task in self.tasks.values())

    @property
    def mean_return(self) -> float | None:
        """Mean return of the newest games of all tasks together."""
        return math.fsum(self._recent) / len(self._recent) if self._recent else None

    def human_normalised(self, name: str) -> float | None:
        """Human-normalised mean return of a task; None without a human score or before its first game has ended."""
        reference, mean_return = self._references.get(name), self.tasks[name].mean_return
        return None if reference is None or mean_return is None else float(human_normalised(mean_return, reference))

    @property
    def human_normalised_mean_capped(self) -> float | None:
        """Mean over the tasks with human scores, each at most 1; None if there are none or before each has finished a game."""
        scores = [self.human_normalised(name) for name in self.tasks if name in self._references]
        known = [min(score, 1.0) for score in scores if score is not None]
        return math.fsum(known) / len(known) if known and len(known) == len(scores) else None

    def point(
        self,
        *,
        session_seconds: float,
        frames_per_second: float | None,
        learning_rate: float,
        by_task: Mapping[str, Sequence[float]] | None = None,
        clipping_shortens: bool = True,
        is_last: bool = False,
    ) -> dict[str, Any]:
        """Return one line of metrics.jsonl and start a new window.

        ``by_task``: values to add, one for each task, by name. ``clipping_shortens``: a clipped gradient makes a shorter step. Adam's steps
        do not depend on the gradient's length, so the share of clipped updates is null there. ``is_last``: the session ends with it.
        """
        lag, clipped = self._lag_window.close(is_last=is_last), self._clipped_window.close(is_last=is_last)
        num_skipped, self._num_skipped = self._num_skipped, 0
        self._frames_at_point = self.env_frames
        update = self._last_update
        return {
            "wall_seconds": round(self._wall_seconds_before + session_seconds, 3),
            **self._counts(),
            "frames_per_second": None if frames_per_second is None else round(frames_per_second, 1),
            "episode_return_mean_100": self.mean_return,
            "episodes": self.episodes,
            "policy_lag_mean": None if lag is None else lag.mean,
            "policy_lag_max": None if lag is None else lag.maximum,
            "learning_rate": learning_rate,
            **({} if update is None else {name: _finite(measured.value) for name, measured in update.losses.items()}),
            "gradient_norm": _finite(update.gradient_norm) if update else None,
            "clipped_share": clipped.mean if clipped is not None and clipping_shortens else None,
            "updates_skipped": num_skipped,
            "health": self._health,
            **self._scores(),
            "tasks": {
                name: {
                    "env_frames": task.env_frames,
                    "episodes": task.episodes,
                    "episode_return_mean_100": task.mean_return,
                    "episode_return_sum": _finite(task.return_sum),
                    **self._score(name),
                    **{key: _finite(numbers[task_id]) for key, numbers in (by_task or {}).items()},
                }
                for task_id, (name, task) in enumerate(self.tasks.items())
            },
        }

    def report(self, ledger: LedgerSnapshot, *, session_seconds: float, training_seconds: float) -> dict[str, Any]:
        """Return the contents of report.json.

        ``frames_per_second`` covers this session: frames consumed per second of ``training_seconds``, counted from the first batch.
        ``wall_seconds`` is the sum over the sessions of the run.
        """
        return {
            **self._counts(),
            "wall_seconds": round(self._wall_seconds_before + session_seconds, 3),
            "frames_per_second": round(self._session_frames / training_seconds, 1) if training_seconds > 0 else 0.0,
            "policy_lag": {"mean": self._lag.mean, "max": self._lag.maximum} if self._lag.count else {"mean": None, "max": None},
            "sample_reuse": self._session_trained / self._session_unrolls if self._session_unrolls else None,
            **({} if self.replay is None else {"replay": self.replay.report()}),
            "health": self._health,
            "accounting": {**ledger.report(), **({"unattributed": rest} if (rest := _unattributed(ledger)) else {})},
            "episode_return": {"mean_last_100": self.mean_return, "episodes": self.episodes},
            **self._scores(),
            "tasks": {
                name: {
                    "env_frames": task.env_frames,
                    "accounting": ledger.task(task_id).as_json(),
                    "episode_return": {"mean_last_100": task.mean_return, "episodes": task.episodes},
                    **({} if (progress := task.progress) is None else {"progress": progress | self._random_play(name)}),
                    **self._score(name),
                    **({} if self._tiling is None else {"temperatures": _by_temperature(task, self._tiling)}),
                }
                for task_id, (name, task) in enumerate(self.tasks.items())
            },
        }

    def as_json(self, session_seconds: float) -> dict[str, Any]:
        """Return the state for checkpoints."""
        return {
            "env_frames": self.env_frames,
            "learner_updates": self.learner_updates,
            "wall_seconds": self._wall_seconds_before + session_seconds,
            "recent_returns": list(self._recent),
            "tiling": None if self._tiling is None else asdict(self._tiling),
            "tasks": {
                name: {
                    "env_frames": task.env_frames,
                    "episodes": task.episodes,
                    "returns": list(task.returns),
                    "first_returns": task.first_returns,
                    "return_sum": task.return_sum,
                    "tiles": _tiles(task),
                }
                for name, task in self.tasks.items()
            },
        }

    def _scores(self) -> dict[str, float | None]:
        """Return the evenness of the tasks' frames and the scores over all tasks."""
        scores: dict[str, float | None] = {}
        if len(self.tasks) > 1:
            frames = [task.env_frames for task in self.tasks.values()]
            scores["task_frames_spread"] = (max(frames) - min(frames)) * len(frames) / self.env_frames if self.env_frames else None
        if self._references.keys() & self.tasks.keys():
            scores["human_normalised_mean_capped"] = self.human_normalised_mean_capped
        return scores

    def _score(self, name: str) -> dict[str, float | None]:
        return {"human_normalised": self.human_normalised(name)} if name in self._references else {}

    def _random_play(self, name: str) -> dict[str, float]:
        return {"random": self._references[name].random} if name in self._references else {}

    def _counts(self) -> dict[str, int]:
        return {
            "env_frames": self.env_frames,
            "agent_steps": self.env_frames // self._action_repeat,
            "learner_updates": self.learner_updates,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.env_frames = state["env_frames"]
        self.learner_updates = state["learner_updates"]
        self._wall_seconds_before = state["wall_seconds"]
        self._recent.extend(state["recent_returns"])
        self.logged()
        # The bandit, too, starts anew with other tiles.
        has_same_tiles = self._tiling is not None and state.get("tiling") == asdict(self._tiling)
        for name, saved in state["tasks"].items():
            task = self.tasks[name]
            task.env_frames, task.episodes = saved["env_frames"], saved["episodes"]
            task.returns.extend(saved["returns"])
            task.first_returns = saved["first_returns"]
            task.return_sum = saved["return_sum"]
            if has_same_tiles:
                task.tiles = {tile: [games, total] for tile, games, total in saved["tiles"]}


def _unattributed(ledger: LedgerSnapshot) -> dict[str, Any]:
    """Return frames of unknown task, all of them dropped; empty if there are none."""
    rest = ledger.unattributed
    if not rest.generated:
        return {}
    return {"generated": rest.generated, "dropped": rest.as_json()["dropped"]}


def _tiles(task: TaskStatistics) -> list[list[float]]:
    return sorted([tile, *sums] for tile, sums in task.tiles.items())


def _by_temperature(task: TaskStatistics, tiling: Tiling) -> list[dict[str, Any]]:
    """Return, for each tile with games, its edges as 1/tau and the return of its games."""
    edges = tiling.edges()
    return [
        {
            "tile": tile,
            "inverse_temperature": [inverse_temperature_of(edges[tile]), inverse_temperature_of(edges[tile + 1])],
            "episodes": games,
            "return_sum": total,
            "mean_return": total / games,
        }
        for tile, (games, total) in sorted(task.tiles.items())
    ]


def _finite(value: float) -> float | None:
    """Return ``value``, or None if JSON cannot represent it: a skipped update may have infinite or NaN values."""
    return value if math.isfinite(value) else None
