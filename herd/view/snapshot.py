"""Computes the contents of the live view from readings. No input or output."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from herd.config.run import StopSettings
from herd.launch.readings import Readings
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.run.journals import mapping_in, number_in
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import Samples, total
from herd.view.health import health_warnings
from herd.view.series import GameLength, Rate, ReturnHistory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from herd.launch.readings import ChildState

_LEARNER = "learner"
"""Name for all learner shards together; no child has this name."""
_KEPT_TO_THE_END = (
    "frames_per_second",
    "policy_lag",
    "queue_unrolls",
    "queue_capacity",
    "starved_share",
    "blocked_share",
    "weights_wait_share",
)
_REPLACED = unroll_metrics.ACTOR_ENVIRONMENTS_REPLACED.name
_FAILED_WRITES = (training_metrics.CHECKPOINT_FAILURES, training_metrics.WRITE_FAILURES)
_LONGEST_SILENCE_SECONDS = 15.0
"""Time without an answer after which a running process is shown as hanging. A busy machine delays answers by seconds."""
_MAX_NAMES = 3
"""Largest number of processes that a phase names."""


@dataclass(frozen=True, slots=True)
class ChildRow:
    """One process of the view."""

    name: str
    state: str
    """As in `ChildState`; or hanging, if it runs and its main loop or its metrics do not."""
    restarts: int
    resident_bytes: float | None
    cpu_cores: float | None
    """Cores kept busy."""
    weights_updates: float | None = None
    """Learner updates of the current weights (for a learner: of those last published)."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task of the view."""

    name: str
    episodes: int
    episode_return: float | None
    """Mean return of the last 100 games; None before the first game ended."""
    env_frames: float | None = None
    """Env frames trained on for the first time, at the newest point; if there is no point, since the learner started."""
    human_normalised: float | None = None
    """Human-normalised mean return at the newest point; None without a human score."""
    first_return: float | None = None
    """First mean over 100 games of this run; None before there is one."""
    best_return: float | None = None
    """Highest mean over 100 games of this run; None before there is one."""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The state of the run at one moment. None: not known (yet)."""

    elapsed_seconds: float
    env_frames: float
    frames_per_second: float | None
    learner_updates: float | None
    policy_lag: float | None
    """Mean, learner updates."""
    queue_unrolls: float | None
    queue_capacity: float | None
    starved_share: float | None
    """Share of its time that the learner waited for a batch."""
    blocked_share: float | None
    """Share of their time that actors waited for credit, over all actors."""
    weights_wait_share: float | None
    """Share of their time that actors waited for weights."""
    progress: float | None
    """Progress to the nearest stop condition, 0..1; None if there is none."""
    eta_seconds: float | None
    tasks: tuple[TaskRow, ...]
    children: tuple[ChildRow, ...]
    troubles: tuple[str, ...] = ()
    """What is wrong with processes, disk and machine, in words."""
    warnings: tuple[str, ...] = ()
    """Warnings about its learning."""
    human_normalised: float | None = None
    """Mean human-normalised score over the tasks with human scores, each at most 1; None until each has finished a game."""
    entropy: float | None = None
    """Entropy of the policy in the last update, in nats."""
    phase: str = ""
    """What the start or the end of the run waits for; empty while it trains."""
    agents: tuple[RunSnapshot, ...] = ()
    """For a run with several agents: the state of each agent, without the processes that they share."""

    @property
    def bottleneck(self) -> str:
        """A description of the bottleneck; the phase if there is one."""
        if self.phase:
            return self.phase
        if self.starved_share is None or self.blocked_share is None:
            return "starting"
        if max(self.starved_share, self.blocked_share) < 0.05:
            return "learner and actors are balanced"
        if self.starved_share >= self.blocked_share:
            return "the learner waits for actors"
        return "actors wait for the learner"


@dataclass(slots=True)
class SnapshotMaker:
    """Turns a series of readings into snapshots, and remembers counters to compute rates."""

    stop: StopSettings
    earlier: InitVar[Iterable[Mapping[str, Any]]] = ()
    """Points of the run before this session."""
    _rates: dict[tuple[str, str], Rate] = field(default_factory=dict)
    _frames_counter: float = 0.0
    """The learner's samples, as last read."""
    _point_frames: float = 0.0
    _counter_at_point: float = 0.0
    _returns: dict[str, ReturnHistory] = field(default_factory=dict)
    """By task, as the next."""
    _lengths: dict[str, GameLength] = field(default_factory=dict)
    _newest: Mapping[str, Any] = field(default_factory=dict)
    """The last point in ``_returns``."""
    _last_game: Mapping[str, Any] = field(default_factory=dict)
    """The first point with as many games as the last one."""
    _answered: dict[tuple[str, int], float] = field(default_factory=dict)
    """Time of the last answer of a process, by name and process id."""
    _lost: dict[tuple[str, str], float] = field(default_factory=dict)
    """Counts of what failed, by metric and actor."""
    _has_trained: bool = False
    _known: dict[str, Any] = field(default_factory=dict)
    """The newest value of each field that is shown until the end, from before the run was asked to stop."""

    def __post_init__(self, earlier: Iterable[Mapping[str, Any]]) -> None:
        for point in earlier:
            self._add_returns(point)

    def make(
        self, readings: Readings, children: Sequence[ChildState], elapsed_seconds: float, trained_seconds: float | None = None
    ) -> RunSnapshot:
        """Make the snapshot of this moment. ``trained_seconds``: the time for ``stop.wall_seconds``; None: ``elapsed_seconds``."""
        snapshot = self._of_this_moment(readings, children, elapsed_seconds, trained_seconds)
        if (stopping := stop_phase(children)) is None:
            self._known |= {name: value for name in _KEPT_TO_THE_END if (value := getattr(snapshot, name)) is not None}
            return snapshot
        # Processes that end are not read any more: the last snapshot shows how fast the run was.
        return replace(snapshot, phase=stopping, **self._known)

    def _phase(self, readings: Readings, children: Sequence[ChildState], learner: str) -> str:
        self._has_trained |= total(readings.samples.get(learner, {}), training_metrics.LEARNER_ENV_FRAMES.name) > 0
        if self._has_trained or not any(child.state == "running" for child in children):  # or they are pods, whose states are others
            return ""
        waiting = _gauge(readings, learner, unroll_metrics.QUEUE_DEPTH.name)
        return start_phase(children, readings.samples, has_unrolls=bool(waiting))

    def _of_this_moment(
        self, readings: Readings, children: Sequence[ChildState], elapsed_seconds: float, trained_seconds: float | None
    ) -> RunSnapshot:
        shards = [child.name for child in children if child.name.startswith("learner")]
        learner, readings = _LEARNER, _with_all_shards(readings, shards)
        actors = [child.name for child in children if child.name.startswith("actor")]
        env_frames = self._env_frames(readings, learner)
        rate = self._rate(readings, learner, training_metrics.LEARNER_ENV_FRAMES.name)
        progress, eta = _progress(self.stop, env_frames, rate, elapsed_seconds if trained_seconds is None else trained_seconds)
        point = readings.point
        self._add_returns(point)
        return RunSnapshot(
            elapsed_seconds=elapsed_seconds,
            env_frames=env_frames,
            frames_per_second=rate,
            learner_updates=number_in(point, "learner_updates"),
            policy_lag=self._policy_lag(readings, learner),
            queue_unrolls=_gauge(readings, learner, unroll_metrics.QUEUE_DEPTH.name),
            queue_capacity=_gauge(readings, learner, unroll_metrics.QUEUE_CAPACITY.name),
            # All shards wait for the shard that starves most.
            starved_share=max(map(_share, self._rates_of(readings, shards, training_metrics.LEARNER_STARVED.name)), default=None),
            blocked_share=self._mean_share(readings, actors, unroll_metrics.ACTOR_BLOCKED.name),
            weights_wait_share=self._mean_share(readings, actors, unroll_metrics.ACTOR_WEIGHTS_WAIT.name),
            progress=progress,
            eta_seconds=eta,
            tasks=tuple(self._with_history(row) for row in _tasks(readings, learner)),
            children=tuple(self._row(readings, child) for child in children),
            human_normalised=_gauge(readings, learner, training_metrics.HUMAN_NORMALISED.name),
            troubles=self._troubles(readings, children, learner),
            warnings=health_warnings(
                point,
                minutes_without_game=self._minutes_without_game(),
                times_longer={name: length.times_longer for name, length in self._lengths.items()},
            ),
            entropy=number_in(point, "entropy"),
            phase=self._phase(readings, children, learner),
        )

    def _add_returns(self, point: Mapping[str, Any]) -> None:
        if not point or point.get("wall_seconds") == self._newest.get("wall_seconds"):
            return  # seen already
        self._newest = point
        if not self._last_game or point.get("episodes") != self._last_game.get("episodes"):
            self._last_game = point
        tasks = mapping_in(point, "tasks")
        for name in tasks:
            self._returns.setdefault(name, ReturnHistory()).add(mapping_in(tasks, name))
            self._lengths.setdefault(name, GameLength()).add(mapping_in(tasks, name))

    def _minutes_without_game(self) -> float:
        """Return the minutes of training between the newest point and the first one with as many games; 0 before there are points."""
        now, then = number_in(self._newest, "wall_seconds"), number_in(self._last_game, "wall_seconds")
        return 0.0 if now is None or then is None else (now - then) / 60.0

    def _with_history(self, row: TaskRow) -> TaskRow:
        history = self._returns.get(row.name)
        if history is None:
            return row
        best = history.best
        if best is not None and row.episode_return is not None:
            best = max(best, row.episode_return)  # which is newer than the newest point
        return replace(row, first_return=history.first, best_return=best)

    def _env_frames(self, readings: Readings, learner: str) -> float:
        """Return the frames of the whole run: those of the newest point, plus the growth of the learner's counter since."""
        if learner in readings.samples:
            # A missing value (a failed scrape) is not 0: the counter would seem to restart, and then jump by the whole session.
            self._frames_counter = total(readings.samples[learner], training_metrics.LEARNER_ENV_FRAMES.name)
        counter = self._frames_counter
        frames = number_in(readings.point, "env_frames") or 0.0
        if frames != self._point_frames or counter < self._counter_at_point:
            self._point_frames, self._counter_at_point = frames, counter
        return self._point_frames + counter - self._counter_at_point

    def _policy_lag(self, readings: Readings, learner: str) -> float | None:
        lags = self._rate(readings, learner, f"{unroll_metrics.POLICY_LAG.name}_sum")
        unrolls = self._rate(readings, learner, f"{unroll_metrics.POLICY_LAG.name}_count")
        return lags / unrolls if lags is not None and unrolls else None

    def _row(self, readings: Readings, child: ChildState) -> ChildRow:
        return ChildRow(
            name=child.name,
            state="hanging" if self._hangs(readings, child) else child.state,
            restarts=child.restarts,
            resident_bytes=_gauge(readings, child.name, metrics.PROCESS_RESIDENT_MEMORY.name),
            cpu_cores=self._rate(readings, child.name, metrics.PROCESS_CPU.name),
            weights_updates=_gauge(readings, child.name, metrics.WEIGHTS_UPDATES.name),
        )

    def _troubles(self, readings: Readings, children: Sequence[ChildState], learner: str) -> tuple[str, ...]:
        failed = sum(total(readings.samples.get(learner, {}), metric.name) for metric in _FAILED_WRITES)
        found = [f"{failed:.0f} writes failed: is the disk full? (the learner's log says which)"] if failed else []
        found += self._losses(readings, [child.name for child in children if child.name.startswith("actor")])
        found += [f"{child.name} was given up: it kept failing" for child in children if child.state == "given up"]
        found += [f"{child.name} {why}" for child in children if (why := self._hangs(readings, child))]
        return (*found, *([readings.other_programs] if readings.other_programs else []))

    def _losses(self, readings: Readings, actors: Sequence[str]) -> list[str]:
        """Say what failed without ending anything; counts of actors that have ended, or do not answer now, are kept."""
        for name in actors:
            for metric in (unroll_metrics.ACTOR_ENVIRONMENTS_REPLACED, unroll_metrics.ACTOR_UNROLLS_REJECTED):
                if name in readings.samples:
                    self._lost[metric.name, name] = total(readings.samples[name], metric.name)
        failed = {name: count for (metric, name), count in self._lost.items() if metric == _REPLACED and count}
        dropped = sum(count for (metric, _), count in self._lost.items() if metric != _REPLACED)
        found = []
        if failed:
            number, where = sum(failed.values()), "the actors' logs say" if len(failed) > 1 else f"{next(iter(failed))}'s log says"
            what = "environments failed and were" if number > 1 else "environment failed and was"
            found.append(f"{number:,.0f} {what} replaced ({where} why)")
        if dropped:
            found.append(f"{dropped:,.0f} unrolls could not be used and were dropped (the learner's log says why)")
        return found

    def _hangs(self, readings: Readings, child: ChildState) -> str | None:
        """Return why a running child does not work; None if it does, or if it is still loading."""
        if child.state != "running" or child.pid is None:
            return None
        if child.name not in readings.samples or readings.pids.get(child.name, child.pid) != child.pid:
            silent = readings.at - self._answered.get((child.name, child.pid), math.inf)
            return f"has not answered for {silent:.0f} s" if silent > _LONGEST_SILENCE_SECONDS else None
        self._answered[child.name, child.pid] = readings.at
        age = _gauge(readings, child.name, metrics.HEARTBEAT_AGE.name)
        return "hangs: its main loop has been silent for longer than it may be" if age is not None and age > 1.0 else None

    def _rates_of(self, readings: Readings, children: Sequence[str], metric: str) -> list[float]:
        """Return the rates of the children that answer."""
        return [rate for child in children if (rate := self._rate(readings, child, metric)) is not None]

    def _mean_share(self, readings: Readings, children: Sequence[str], metric: str) -> float | None:
        shares = [_share(rate) for rate in self._rates_of(readings, children, metric)]
        return sum(shares) / len(shares) if shares else None

    def _rate(self, readings: Readings, child: str, metric: str) -> float | None:
        samples = readings.samples.get(child)
        if samples is None:
            return None
        rate = self._rates.setdefault((child, metric), Rate())
        rate.add(readings.at, total(samples, metric))
        return rate.per_second


class AgentsSnapshotMaker:
    """As `SnapshotMaker`, for a run with one or several agents: makes their snapshots and one of all of them."""

    def __init__(self, stop: StopSettings, agents: Mapping[str, int], earlier: Sequence[Iterable[Mapping[str, Any]]] = ()) -> None:
        """``agents``: agents by name of the learner's child. ``earlier``: points of each agent before this session."""
        self._agents = agents
        number = max(agents.values(), default=0) + 1
        self._makers = [SnapshotMaker(stop, earlier[agent] if agent < len(earlier) else ()) for agent in range(number)]

    def make(
        self, readings: Readings, children: Sequence[ChildState], elapsed_seconds: float, trained_seconds: float | None = None
    ) -> RunSnapshot:
        """Make the snapshot of this moment, as `SnapshotMaker.make`."""
        if len(self._makers) == 1:
            return self._makers[0].make(readings, children, elapsed_seconds, trained_seconds)
        snapshots = []
        for agent, maker in enumerate(self._makers):
            # The shared processes are shown once, with the first agent.
            own = [child for child in children if self._agents.get(child.name, 0) == agent]
            snapshots.append(maker.make(readings.of_agent(agent), own, elapsed_seconds, trained_seconds))
        return together(snapshots, children)


def start_phase(children: Sequence[ChildState], answering: Collection[str], *, has_unrolls: bool) -> str:
    """Say what a run waits for before its first update.

    Args:
        children: all children.
        answering: names of the children that serve their metrics, which means that they have loaded.
        has_unrolls: whether the learner's queue contains unrolls.

    """
    loading = [child.name for child in children if child.state == "running" and child.name not in answering]
    if loading:
        shown = ", ".join(loading[:_MAX_NAMES])
        more = f" and {len(loading) - _MAX_NAMES} more" if len(loading) > _MAX_NAMES else ""
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
    return f"stopping: waiting for {', '.join(alive[:_MAX_NAMES])}" if alive else "stopped"


def snapshot_of(newest: Mapping[str, Any], points: Iterable[Mapping[str, Any]]) -> RunSnapshot:
    """Return the state of an agent at its newest point, without its processes. ``points``: its curve, with which some warnings compare."""
    made = SnapshotMaker(StopSettings(), points).make(Readings(point=newest), (), number_in(newest, "wall_seconds") or 0.0)
    return replace(
        made,
        frames_per_second=number_in(newest, "frames_per_second"),
        policy_lag=number_in(newest, "policy_lag_mean"),
        human_normalised=number_in(newest, "human_normalised_mean_capped"),
    )


def together(agents: Sequence[RunSnapshot], children: Sequence[ChildState]) -> RunSnapshot:
    """Return one snapshot of all agents, with the processes in the order of ``children``. The run ends with its last agent."""
    first = agents[0]

    def known(values: Iterable[float | None]) -> list[float]:
        return [value for value in values if value is not None]

    def add_up(values: Iterable[float | None]) -> float | None:
        return sum(found) if (found := known(values)) else None

    lags = known(agent.policy_lag for agent in agents)
    rows = {row.name: row for agent in agents for row in agent.children}
    return replace(
        first,
        env_frames=sum(agent.env_frames for agent in agents),
        frames_per_second=add_up(agent.frames_per_second for agent in agents),
        learner_updates=add_up(agent.learner_updates for agent in agents),
        policy_lag=sum(lags) / len(lags) if lags else None,
        queue_unrolls=add_up(agent.queue_unrolls for agent in agents),
        queue_capacity=add_up(agent.queue_capacity for agent in agents),
        starved_share=max(known(agent.starved_share for agent in agents), default=None),
        progress=min(known(agent.progress for agent in agents), default=None),
        eta_seconds=max(known(agent.eta_seconds for agent in agents), default=None),
        tasks=(),
        human_normalised=None,
        entropy=None,
        children=tuple(rows[child.name] for child in children),
        troubles=tuple(dict.fromkeys(line for agent in agents for line in agent.troubles)),
        warnings=tuple(f"agent {number}: {warning}" for number, agent in enumerate(agents) for warning in agent.warnings),
        phase=stop_phase(children) or (first.phase if all(agent.phase for agent in agents) else ""),
        agents=tuple(agents),
    )


def _with_all_shards(readings: Readings, shards: Sequence[str]) -> Readings:
    """Return the readings with the sums over the learner's shards as `_LEARNER`, which is missing while a shard does not answer."""
    samples = [readings.samples[shard] for shard in shards if shard in readings.samples]
    if not samples or len(samples) < len(shards):
        return readings
    sums: Samples = {}
    for each in samples:
        for key, value in each.items():
            # Mean returns cannot be added: those of one shard are used for all.
            sums[key] = value if key[0] == training_metrics.EPISODE_RETURN.name else sums.get(key, 0.0) + value
    return replace(readings, samples={**readings.samples, _LEARNER: sums})


def _share(rate: float) -> float:
    """Limit a share of time to 1: a wait is counted when it is over, so it may be longer than the interval."""
    return min(1.0, max(0.0, rate))


def _gauge(readings: Readings, child: str, metric: str) -> float | None:
    value = readings.samples.get(child, {}).get((metric, ()))
    return None if value is None or math.isnan(value) else value


def _tasks(readings: Readings, learner: str) -> tuple[TaskRow, ...]:
    """Return the tasks from the learner's metrics, or from the newest point while it does not answer."""
    samples = readings.samples.get(learner, {})
    live = {dict(labels)["task"]: value for (name, labels), value in samples.items() if name == training_metrics.EPISODE_RETURN.name}
    logged = mapping_in(readings.point, "tasks")
    rows = []
    for task in dict.fromkeys([*logged, *live]):
        known = mapping_in(logged, task)
        episode_return = live.get(task, number_in(known, "episode_return_mean_100"))
        episodes = max(int(total(samples, training_metrics.EPISODES.name, task=task)), int(number_in(known, "episodes") or 0))
        missing = episode_return is None or math.isnan(episode_return) or episodes == 0
        env_frames = number_in(known, "env_frames")
        if env_frames is None and samples:
            env_frames = total(samples, training_metrics.TASK_ENV_FRAMES.name, task=task)
        rows.append(TaskRow(task, episodes, None if missing else episode_return, env_frames, number_in(known, "human_normalised")))
    return tuple(rows)


def _progress(
    stop: StopSettings, env_frames: float, frames_per_second: float | None, elapsed_seconds: float
) -> tuple[float | None, float | None]:
    """Return the completed fraction and the seconds left until the first stop condition."""
    conditions: list[tuple[float, float]] = []  # (seconds left, fraction done)
    if stop.wall_seconds is not None:
        conditions.append((max(0.0, stop.wall_seconds - elapsed_seconds), min(1.0, elapsed_seconds / stop.wall_seconds)))
    if stop.env_frames is not None:
        left = max(0.0, stop.env_frames - env_frames)
        seconds = left / frames_per_second if frames_per_second else (math.inf if left else 0.0)
        conditions.append((seconds, min(1.0, env_frames / stop.env_frames)))
    if not conditions:
        return None, None
    seconds, fraction = min(conditions)
    return fraction, seconds if math.isfinite(seconds) else None
