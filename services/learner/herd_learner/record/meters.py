"""The learner's metrics: instruments resolved once, so that the hot loop only adds numbers."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from herd.protocols.replay import metrics as replay_metrics
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry import training as names
from herd_learner.record.statistics import RETURN_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.contract.spaces import EnvSpec
    from herd.protocols.unrolls.messages import EpisodeReport
    from herd.telemetry.telemetry import Telemetry
    from herd.training.diagnostics import Health
    from herd.training.trainer import UpdateStatistics
    from herd_learner.batches.shared import SharedReplay
    from herd_learner.intake.queue import QueuedUnroll
    from herd_learner.record.statistics import RunStatistics

RATE_SECONDS = 5.0
"""Window of the frames per second."""
MIN_RATE_SECONDS = 1.0
"""Shortest window, at the start: a few updates may come in a burst, from unrolls that have waited."""


class Meters:
    """Called from the training thread; the I/O thread has its own."""

    def __init__(self, telemetry: Telemetry, *, spec: EnvSpec, statistics: RunStatistics) -> None:
        self._telemetry = telemetry
        self._statistics = statistics
        counter, gauge = telemetry.counter, telemetry.gauge
        self._env_frames = counter(names.LEARNER_ENV_FRAMES)
        self.run_env_frames = gauge(names.RUN_ENV_FRAMES)
        self.run_is_over = gauge(names.RUN_IS_OVER)
        self._lag = telemetry.histogram(unroll_metrics.POLICY_LAG)
        self._updates = counter(names.LEARNER_UPDATES)
        self._skipped = counter(names.UPDATES_SKIPPED)
        self._clipped = counter(names.UPDATES_CLIPPED)
        self._phases = {phase: counter(names.UPDATE_PHASE, phase=phase) for phase in names.PHASES}
        self._starved = counter(names.LEARNER_STARVED)
        self._terms: dict[str, Callable[[float], None]] = {}
        self._metrics: dict[str, Callable[[float], None]] = {}
        """Instruments by the loss's names, which are unknown before the first update."""
        self._gradient_norm = gauge(names.GRADIENT_NORM)
        self._learning_rate = gauge(names.LEARNING_RATE)
        self._task_frames = [counter(names.TASK_ENV_FRAMES, task=task) for task in spec.task_names]
        self._episodes = [counter(names.EPISODES, task=task) for task in spec.task_names]
        self._returns = [gauge(names.EPISODE_RETURN, task=task) for task in spec.task_names]
        self._lengths = [gauge(names.EPISODE_LENGTH, task=task) for task in spec.task_names]
        self._recent_lengths: list[deque[int]] = [deque(maxlen=RETURN_WINDOW) for _ in spec.task_names]
        self._task_names = spec.task_names
        self._window: deque[tuple[float, int]] = deque()
        """Time and frames consumed after each update of the last seconds, beginning with the first update."""
        self._frames_consumed = 0
        self._replayed = counter(unroll_metrics.UNROLLS_REPLAYED)
        self._staleness = telemetry.histogram(replay_metrics.REPLAY_STALENESS)
        self._checkpoints = counter(names.CHECKPOINTS_WRITTEN)
        self.checkpoint_failures = counter(names.CHECKPOINT_FAILURES)
        self.checkpoint_updates = gauge(names.CHECKPOINT_UPDATES)
        self.copy_failures = counter(names.COPY_FAILURES)
        self.copy_updates = gauge(names.COPY_UPDATES)
        counter(names.WRITE_FAILURES, file=names.FILES[0])  # starts at 0, so that the first failure is seen as an increase

    def episode(self, episode: EpisodeReport, inverse_temperature: float | None = None) -> None:
        """Record the end of a game that was played at this 1/tau."""
        task = episode.task_id
        self._statistics.record_episode(task, episode.episode_return, inverse_temperature)
        self._episodes[task].inc()
        self._recent_lengths[task].append(episode.agent_steps)
        mean_return = self._statistics.tasks[self._task_names[task]].mean_return
        if mean_return is not None:
            self._returns[task].set(mean_return)
        self._lengths[task].set(sum(self._recent_lengths[task]) / len(self._recent_lengths[task]))

    def waited(self, seconds: float) -> None:
        """Record the time spent waiting for a batch."""
        self.spent(wait=seconds)
        self._starved.inc(seconds)

    def spent(self, **phase_seconds: float) -> None:
        """Record the seconds spent in phases of an update."""
        for phase, seconds in phase_seconds.items():
            self._phases[phase].inc(seconds)

    def consumed(self, unroll: QueuedUnroll, policy_lag: int) -> None:
        """Count an unroll that was trained on."""
        self._env_frames.inc(unroll.num_frames)
        self._frames_consumed += unroll.num_frames
        self._task_frames[unroll.task_id].inc(unroll.num_frames)
        self._lag.observe(policy_lag)

    def watch_replay(self, shared: SharedReplay) -> None:
        """Export the counters of the thread between learner and replay service."""
        self._telemetry.read(replay_metrics.REPLAY_TIMEOUTS, lambda: float(shared.num_timeouts))
        self._telemetry.read(replay_metrics.REPLAY_LOST, lambda: float(shared.num_inserts_dropped), reason="backlog")
        self._telemetry.read(replay_metrics.REPLAY_LOST, lambda: float(shared.num_damaged), reason="damaged")

    def replayed(self, num_unrolls: int, staleness: Sequence[int]) -> None:
        """Record the replayed unrolls of the last batch, and the staleness of this agent's."""
        self._replayed.inc(num_unrolls)
        for updates in staleness:
            self._staleness.observe(updates)

    def update_arrived(self, update: UpdateStatistics) -> None:
        """Record the numbers of an update."""
        self._skipped.inc(not update.is_finite)
        self._clipped.inc(update.is_clipped)
        for name, (value, cost) in update.losses.items():
            if name not in self._metrics:
                self._name_metric(name, is_term=cost is not None)
            self._metrics[name](value)
            if cost is not None:
                self._terms[name](cost * value)
        if update.health is not None:
            self._show_health(update.health)
        self._gradient_norm.set(update.gradient_norm)

    def updated(self, learning_rate: float, **phase_seconds: float) -> None:
        """Count an update."""
        self._updates.inc()
        self.spent(**phase_seconds)
        self._learning_rate.set(learning_rate)
        now = time.monotonic()
        self._window.append((now, self._frames_consumed))
        while len(self._window) > 2 and now - self._window[1][0] > RATE_SECONDS:
            self._window.popleft()

    def frames_per_second(self) -> float | None:
        """Env frames consumed per second over the last seconds; None within a second of the first update."""
        if not self._window:
            return None
        (first_at, first), (last_at, last) = self._window[0], self._window[-1]
        return (last - first) / (last_at - first_at) if last_at - first_at >= MIN_RATE_SECONDS else None

    def human_normalised(self, mean_capped: float | None) -> None:
        """Set the score over the tasks with human scores; None before each has finished a game."""
        if mean_capped is not None:
            self._telemetry.gauge(names.HUMAN_NORMALISED).set(mean_capped)

    def checkpoint_written(self, learner_updates: int) -> None:
        """Record a complete checkpoint on disk."""
        self._checkpoints.inc()
        self.checkpoint_updates.set(learner_updates)

    def write_failed(self, file: str) -> None:
        """Count a file of the run directory that could not be written."""
        self._telemetry.counter(names.WRITE_FAILURES, file=file).inc()

    def _show_health(self, health: Health) -> None:
        gauge = self._telemetry.gauge
        gauge(names.UPDATE_KL).set(health.update_kl)
        for metric, value in (
            (names.EFFECTIVE_SAMPLE_SIZE, health.effective_sample_size),
            (names.EXPLAINED_VARIANCE, health.explained_variance),
        ):
            gauge(metric).set(float("nan") if value is None else value)
        for number, layer in enumerate(health.layers, start=1):
            gauge(names.LAYER_DEAD, layer=str(number)).set(layer.dead / layer.total)
            gauge(names.LAYER_ALWAYS_ON, layer=str(number)).set(layer.always_on / layer.total)

    def _name_metric(self, name: str, *, is_term: bool) -> None:
        self._metrics[name] = self._telemetry.gauge(names.LEARNER_METRIC, name=name).set
        if is_term:
            self._terms[name] = self._telemetry.gauge(names.LOSS, term=name.removeprefix("loss_")).set
