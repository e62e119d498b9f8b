"""The learner process: wires the parts, then takes batches until it is told to stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from herd.checkpoints.store import CheckpointError
from herd.checkpoints.weights import encode_weights
from herd.config.origin import Origin
from herd.config.tiling import tiling_of
from herd.envs.api import UnknownTaskError
from herd.envs.make import environment_spec
from herd.process.allocator import return_free_memory
from herd.process.hardware import choose_precision, cpu_has_bfloat16, usable_cpus
from herd.process.startup import BadInputError, announce_process
from herd.telemetry import MetricsEndpointError
from herd.telemetry.logs import configure_logging, get_logger
from herd.telemetry.telemetry import Telemetry
from herd.wire.run_layout import run_layout
from herd.wire.sockets import EndpointInUse
from services.learner import snapshot
from services.learner.batching import BatchAssembler
from services.learner.io_thread import IoThread
from services.learner.ledger import STALE
from services.learner.lineage import LINEAGE_FILE, LineageError, open_lineage
from services.learner.meters import Meters
from services.learner.optimizers import Rates, rates_at
from services.learner.queue import QueuedUnroll, UnrollQueue
from services.learner.run_files import RunFiles
from services.learner.update import Update

if TYPE_CHECKING:
    from pathlib import Path

    from herd.config.settings import RunSettings
    from herd.process.signals import StopRequest
    from services.learner.update import Batch

BATCH_TIMEOUT_SECONDS = 0.2
"""How long the training thread waits for a batch before it looks at signals and clocks again."""


def run(settings: RunSettings, stop: StopRequest) -> None:
    """Learn until ``settings.stop`` or the signal; leaves a checkpoint and report.json.

    Raises:
        BadInputError: unknown task, port in use, a run directory that cannot be used, or no checkpoint that can.
    """
    if stop:
        return  # asked while torch was imported: nothing was begun
    configure_logging("learner")
    try:
        learner = Learner(settings)
    except (UnknownTaskError, EndpointInUse, MetricsEndpointError, CheckpointError, LineageError) as error:
        raise BadInputError(str(error)) from error
    with learner:
        learner.train(stop)


def choose_device(settings: RunSettings) -> tuple[torch.device, torch.dtype]:
    """The device and the precision of convolutions and matrix products."""
    name = settings.learner.device
    device = torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")
    has_bfloat16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_has_bfloat16()
    choice = choose_precision(settings.learner.precision, has_bfloat16=has_bfloat16)
    return device, torch.bfloat16 if choice == "bfloat16" else torch.float32


class Learner:
    """Owns everything of the process; `train` is the hot loop."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._run_dir: Path = settings.directory
        try:
            self._run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{self._run_dir}: cannot be made: {error.strerror or error}") from error
        torch.set_num_threads(settings.learner.threads or usable_cpus())
        self._log = get_logger()
        spec = environment_spec(settings.env)
        self._origin = Origin.of(settings, spec)
        layout = run_layout(settings, spec)
        device, precision = choose_device(settings)
        self._device = device

        self._update = Update(settings, spec, device, precision)
        self._batches = BatchAssembler(layout, settings, device)
        checkpoint = snapshot.load_newest(self._run_dir, self._origin) if settings.resume else None
        self._statistics, self._ledger, least_lineage = snapshot.restore_counters(
            checkpoint, spec, tiling_of(settings.bandit) if settings.has_bandit else None
        )
        if checkpoint is not None:
            snapshot.restore(checkpoint, self._update, replay=self._batches.replay)
            self._log.info("resumed", checkpoint=str(checkpoint.path))

        self._credit_bounds_lag = settings.actor.credit == "before_unroll"
        self._telemetry = Telemetry("learner", settings.name)
        self._queue = UnrollQueue(layout)
        self._meters = Meters(
            self._telemetry,
            spec=spec,
            algorithm=settings.algorithm,
            ledger=self._ledger,
            queue=self._queue,
            statistics=self._statistics,
            online_unrolls=settings.num_online_unrolls,
        )
        self._files = RunFiles(self._run_dir, self._meters.write_failed)
        self._lineage = self._open_lineage(least_lineage)
        self._io = IoThread(
            settings,
            contract=self._origin.contract,
            layout=layout,
            spec=spec,
            ledger=self._ledger,
            queue=self._queue,
            meters=self._meters,
        )
        try:
            port = self._telemetry.serve(settings.learner.metrics_host, settings.learner.metrics_port)
        except MetricsEndpointError:
            self._io.close()
            raise
        announce_process(self._run_dir, "learner", 0, metrics_port=port)

    def __enter__(self) -> Learner:
        self._io.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._io.close()
        self._telemetry.close()

    def train(self, stop: StopRequest) -> None:
        """Take a batch, update, publish; until the stop conditions or the signal."""
        settings, meters = self._settings, self._meters
        started = time.monotonic()
        first_batch_at: float | None = None
        log_at, checkpoint_at = started + settings.learner.log_interval_seconds, started + settings.learner.checkpoint_interval_seconds
        self._publish()
        self._telemetry.set_ready(True)
        now = started
        while not stop and not self._is_finished(now - started):
            self._telemetry.beat()
            if self._io.failure is not None:
                raise RuntimeError("the I/O thread died") from self._io.failure
            self._record_episodes()
            unrolls, stale = self._queue.take(settings.num_online_unrolls, self._is_stale, BATCH_TIMEOUT_SECONDS)
            self._drop(stale)
            after_wait = time.monotonic()
            meters.waited(after_wait - now)
            if unrolls:
                first_batch_at = first_batch_at or now
                self._step(unrolls, after_wait)
            now = time.monotonic()
            if now >= log_at:
                log_at = now + settings.learner.log_interval_seconds
                self._log_point(now - started)
            if now >= checkpoint_at:
                self._checkpoint(now - started)
                checkpoint_at = time.monotonic() + settings.learner.checkpoint_interval_seconds
        self._telemetry.set_ready(False, "stopping")
        # Nothing may be acknowledged any more that the last checkpoint does not know of.
        self._io.close()
        self._record_episodes()
        self._log_point(now - started)
        self._checkpoint(now - started)
        self._write_report(now - started, now - first_batch_at if first_batch_at else 0.0)

    def _step(self, unrolls: list[QueuedUnroll], started: float) -> None:
        """One batch: updates on it, from queued unrolls to published weights."""
        batch = self._batches.assemble(unrolls)
        self._queue.release(unrolls)
        if not self._credit_bounds_lag:
            self._io.grant_again(len(unrolls))
        device_batch = self._update.to_device(batch)
        on_device = time.monotonic()
        # Between them is no checkpoint, so that frames are consumed with the first and are never trained on once only.
        for use in range(self._settings.learner.sample_reuse):
            self._update_on(device_batch, unrolls if use == 0 else [], started, on_device)
            started = on_device = time.monotonic()
        if self._credit_bounds_lag:
            # Only now: an unroll that this credit begins must not begin under the version before.
            self._io.grant_again(len(unrolls))

    def _update_on(self, batch: Batch, consumed: list[QueuedUnroll], started: float, on_device: float) -> None:
        """One update; ``consumed`` are the unrolls that no update saw before."""
        losses = self._update.forward_backward(batch)
        after_backward = time.monotonic()
        rates = self._rates()
        update = self._update.finish(losses, rates)
        after_optimizer = time.monotonic()

        for unroll in consumed:
            lag = max(0, self._statistics.learner_updates - unroll.policy_version[1])
            self._statistics.record_consumed(unroll.task_id, unroll.num_frames, lag)
            self._meters.consumed(unroll, lag)
        self._ledger.consume(sum(unroll.num_frames for unroll in consumed))
        self._statistics.record_update(update, self._settings.num_online_unrolls)
        if self._batches.replay is not None:
            self._meters.replayed(self._settings.num_replayed_unrolls, len(self._batches.replay))
        if not update.is_finite:
            self._log.error("update skipped: the gradient is not finite", learner_updates=self._statistics.learner_updates)
        if self._statistics.learner_updates % self._settings.learner.publish_interval_updates == 0:
            self._publish()
        finished = time.monotonic()
        self._meters.updated(
            update,
            rates.learning_rate,
            host_to_device=on_device - started,
            forward_backward=after_backward - on_device,
            optimizer=after_optimizer - after_backward,
            publish=finished - after_optimizer,
        )

    def _record_episodes(self) -> None:
        while self._io.episodes:
            self._meters.episode(*self._io.episodes.popleft())

    def _is_finished(self, session_seconds: float) -> bool:
        stop = self._settings.stop
        if stop.env_frames is not None and self._statistics.env_frames >= stop.env_frames:
            return True
        return stop.wall_seconds is not None and session_seconds >= stop.wall_seconds

    def _is_stale(self, unroll: QueuedUnroll) -> bool:
        limit = self._settings.learner.max_policy_lag
        if limit is None:
            return False
        lineage, updates = unroll.policy_version
        # An abandoned lineage's update numbers mean other weights: how old they are cannot be said.
        return lineage != self._lineage or self._statistics.learner_updates - updates > limit

    def _drop(self, stale: list[QueuedUnroll]) -> None:
        if not stale:
            return
        self._queue.release(stale)
        self._ledger.drop(STALE, sum(unroll.num_frames for unroll in stale))
        self._meters.dropped(len(stale), STALE)
        self._io.grant_again(len(stale))

    def _rates(self) -> Rates:
        counts = self._statistics
        return rates_at(self._settings.optimizer, env_frames=counts.env_frames, learner_updates=counts.learner_updates)

    def _publish(self) -> None:
        newer = self._io.newer_lineage
        if newer is not None and newer >= self._lineage:
            # The parameter server outlived this run directory: go beyond what it holds, so that actors follow.
            self._lineage = self._open_lineage(newer + 1)
        dtype = torch.bfloat16 if self._settings.learner.weights_dtype == "bfloat16" else torch.float32
        payload = encode_weights(self._update.agent.state_dict(), dtype)
        self._io.publish(self._lineage, self._statistics.learner_updates, payload)
        self._telemetry.set_weights_version(self._lineage, self._statistics.learner_updates)

    def _open_lineage(self, at_least: int) -> int:
        return open_lineage(self._run_dir, at_least, on_failure=lambda error: self._files.failed(LINEAGE_FILE, error))

    def _log_point(self, session_seconds: float) -> None:
        point = self._statistics.point(
            session_seconds=session_seconds,
            frames_per_second=self._meters.frames_per_second(),
            learning_rate=self._rates().learning_rate,
        )
        self._files.add_point(point)
        self._files.keep_lineage(self._lineage)

    def _checkpoint(self, session_seconds: float) -> None:
        try:
            path = snapshot.save(
                self._run_dir,
                self._update,
                origin=self._origin,
                learner_updates=self._statistics.learner_updates,
                lineage=self._lineage,
                ledger=self._ledger.snapshot().as_json(),
                statistics=self._statistics.as_json(session_seconds),
                replay=self._batches.replay,
                keep=self._settings.learner.keep_checkpoints,
            )
        except CheckpointError as error:
            # The run is worth more than one checkpoint: the last good one stays, and the next interval tries again.
            self._meters.checkpoint_failed()
            self._log.error("checkpoint failed", reason=str(error))
        else:
            self._meters.checkpoint_written(self._statistics.learner_updates)
            self._log.info("checkpoint", path=str(path))
        return_free_memory()

    def _write_report(self, session_seconds: float, training_seconds: float) -> None:
        report = self._statistics.report(self._ledger.snapshot(), session_seconds=session_seconds, training_seconds=training_seconds)
        self._files.write_report(report)
