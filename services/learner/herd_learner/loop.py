"""The learner process: connects the parts, then trains on batches until it is stopped."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from herd.acting.policy import parse_device, precision_of
from herd.components.suites import suite_of
from herd.components.trackers.api import Run
from herd.components.trackers.publishing import make_trackers, what_is_missing
from herd.components.user_code import UserCodeError
from herd.config.run_contract import Origin, run_layout
from herd.files import make_folder
from herd.protocols.bandit.tiling import tiling_of_run
from herd.protocols.population.client import PopulationClient
from herd.protocols.replay.client import ReplayClient
from herd.protocols.unrolls.metrics import STALE
from herd.run.checkpoints import CheckpointError
from herd.run.paths import LINEAGE, REPORT, agent_directory
from herd.run.processes import is_supervised
from herd.run.settings import changed_settings, keep_settings
from herd.service.allocator import return_free_memory
from herd.service.host import usable_cpus
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError, LostAtEndError
from herd.telemetry.telemetry import COPY_IS_INCOMPLETE, RUN_IS_OVER
from herd.training.trainer import Trainer
from herd.transport import AddressInUse
from herd_learner.batches.assembler import BatchAssembler
from herd_learner.group.collectives import ShardGroup, join_group
from herd_learner.group.rendezvous import NotGatheredError, shared_settings
from herd_learner.group.turns import Turn, VersionSchedule
from herd_learner.intake.io_thread import IntakeMeters, IoThread
from herd_learner.intake.ledger import frames_by_task
from herd_learner.intake.queue import QueuedUnroll, UnrollQueue, is_stale
from herd_learner.population.link import PopulationLink
from herd_learner.population.member import FitnessWindow, Member, Membership
from herd_learner.publication import Publication
from herd_learner.record import checkpoints
from herd_learner.record.lineage import LineageError, open_lineage
from herd_learner.record.meters import Meters
from herd_learner.record.records import Records, RunFiles
from herd_learner.record.replay_account import ReplayAccount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from herd.components.optimizers import Rates
    from herd.config.run import RunSettings
    from herd.protocols.population.messages import Order
    from herd.service.identity import Identity
    from herd.service.signals import Stop
    from herd.training.batch import TrainBatch
    from herd.training.trainer import UpdateStatistics

BATCH_TIMEOUT_SECONDS = 0.2
"""How long the training thread waits for a batch before it checks signals and clocks again."""
MAX_SKIPPED_UPDATES = 100
"""Updates skipped in a row that end the run. A batch that overflows is one or a few; after so many, no batch can be learned from."""
REPLAY_PENDING_BYTES = 256 << 20
"""Bytes of packed pieces not acknowledged by the replay service: two seconds at 1 Gbit/s."""


def run(settings: RunSettings, identity: Identity, stop: Stop, play: Callable[[], None] | None = None) -> None:
    """Train until ``settings.stop`` or the signal, then write a checkpoint and report.json.

    ``play`` runs an actor in this thread: it is called when there are too few unrolls for a batch, and returns when there are more. With
    None, actors run elsewhere and the thread waits.

    Raises:
        BadInputError: unknown task, port in use, unusable run directory, no usable checkpoint, a missing package, or training that has
            diverged, so that no further update can be made.
        LostAtEndError: the last checkpoint or the report could not be written.
    """
    if stop:
        return  # stopped while torch was imported: nothing has started
    if (missing := what_is_missing(settings.logging)) is not None:
        raise BadInputError(missing)
    of_run, settings = settings, settings.of_agent(identity.agent or 0)
    device, precision = choose_device(settings)
    with ServiceProcess("learner", settings, identity) as process:
        # Before the shards connect, so that probes do not consider this process dead while it waits for the others.
        process.serve_metrics()
        _learn(process, stop, device, precision, play, of_run=of_run)


def _learn(
    process: ServiceProcess,
    stop: Stop,
    device: torch.device,
    precision: torch.dtype,
    play: Callable[[], None] | None = None,
    *,
    of_run: RunSettings | None = None,
) -> None:
    """Run the learner; ``of_run`` are the settings common to all agents, None if they are not written to the run directory."""
    telemetry, learner = process.telemetry, process.settings.learner

    def go_on() -> bool:
        telemetry.beat()
        return not stop

    telemetry.set_ready(False, "waiting for the other shards" if learner.shards > 1 else "starting")
    try:
        group = join_group(
            learner.shards,
            device=device,
            settings=shared_settings(process.settings),
            timeout_seconds=learner.shard_timeout_seconds,
            go_on=go_on,
        )
    except NotGatheredError:
        return  # nothing was begun
    try:
        # The shards' first collectives run in the constructor, so a peer may be lost there too.
        with _make(process, group, device, precision) as training:
            if of_run is not None and group.is_first and not process.identity.agent:
                _leave_settings(of_run, process)  # now that the checkpoint is known to match them
            training.train(stop, play)
    except UserCodeError as error:
        raise BadInputError(str(error)) from error
    except (BadInputError, LostAtEndError):
        raise
    except Exception as error:
        group.end_if_broken(error)
        raise


def _leave_settings(settings: RunSettings, process: ServiceProcess) -> None:
    """Write config.yaml for evaluate, watch and plot, if ``herd train`` has not. A disk error does not stop the run."""
    try:
        if not is_supervised(settings.directory):
            for change in changed_settings(settings.directory, settings):
                process.log.info("a setting has changed since the last start", change=str(change))
            keep_settings(settings.directory, settings)
    except OSError as error:
        process.log.warning("cannot write config.yaml", directory=str(settings.directory), reason=error.strerror or str(error))


def _make(process: ServiceProcess, group: ShardGroup, device: torch.device, precision: torch.dtype) -> Learner:
    try:
        return Learner(process, group, device, precision)
    except (AddressInUse, CheckpointError, LineageError) as error:
        raise BadInputError(str(error)) from error


def choose_device(settings: RunSettings) -> tuple[torch.device, torch.dtype]:
    """Return the device and the precision of convolutions and matrix products."""
    device = parse_device(settings.learner.device, "learner.device")
    if device.type == "cuda" and "LOCAL_RANK" in os.environ:
        # One process per GPU: torchrun and ``herd train`` number those of one machine.
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if settings.repeats and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is computed
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # nothing here reads memory before it is written
    return device, precision_of(settings.learner.precision, device)


class Prepared(NamedTuple):
    """A batch on the device, or being copied to it."""

    batch: TrainBatch
    num_replayed: int
    replayed_versions: list[tuple[int, int]]
    """(lineage, learner_updates) of the policies that began its replayed unrolls; only those of this agent."""
    num_trained_rows: tuple[int, int]
    """Of online and of replayed unrolls."""

    def without_replayed(self) -> Prepared:
        """Return the online unrolls only."""
        return Prepared(self.batch.part(0, self.batch.num_unrolls - self.num_replayed), 0, [], (self.num_trained_rows[0], 0))


class Learner:
    """Owns everything of the process; `train` is the hot loop."""

    _trains_since: float | None = None
    """Time at which this session's first batch was taken."""

    def __init__(self, process: ServiceProcess, group: ShardGroup, device: torch.device, precision: torch.dtype) -> None:
        settings, spec = process.settings, process.spec
        self._settings = settings
        self._group = group
        agent = process.identity.agent or 0
        self._run_dir: Path = agent_directory(settings, agent)
        try:
            make_folder(self._run_dir)
        except OSError as error:
            raise BadInputError(f"{self._run_dir}: cannot be created: {error.strerror or error}") from error
        # Shards on one machine share its CPUs.
        local_shards = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(settings.learner.threads or max(1, usable_cpus() // local_shards))
        self._log = process.log
        self._origin = Origin.of(settings, spec)
        layout = run_layout(settings, spec)
        self._num_online = group.share(settings.num_online_unrolls)

        self._trainer = Trainer(settings, spec, device, precision, group)
        self._works_ahead = settings.works_ahead(device.type)
        self._prepared: Prepared | None = None
        self._queue = UnrollQueue()

        replay_client = None
        if settings.replay.kind == "shared":
            replay_client = ReplayClient(
                process.context,
                process.identity.addresses["replay"],
                layout=layout,
                run_id=settings.name,
                agent=agent,
                contract=self._origin.contract,
                max_pending_bytes=REPLAY_PENDING_BYTES,
            )
        self._batches = BatchAssembler(
            layout,
            settings,
            device,
            agent=agent,
            rank=group.rank,
            num_slots=2 if self._works_ahead else 1,
            replay_client=replay_client,
        )
        checkpoint = checkpoints.load_to_resume(settings, self._run_dir, self._origin) if group.is_first else None
        checkpoint = checkpoints.broadcast(checkpoint, group)
        self._statistics, self._ledger, least_lineage = checkpoints.restore_counters(
            checkpoint,
            spec,
            tiling_of_run(settings),
            references=suite_of(settings.env).reference_scores(),
            is_first=group.is_first,
        )
        if settings.replay.kind != "none":
            self._statistics.replay = ReplayAccount()
        self._population = self._join_population(process)
        if checkpoint is not None:
            if self._population is not None:
                self._settings = self._population.restore(checkpoint)
            checkpoints.restore(checkpoint, self._trainer, replay=self._batches.replay, rank=group.rank)
            self._log.info("resumed", checkpoint=str(checkpoint.path))
        self._env_frames = self._statistics.env_frames

        self._telemetry = process.telemetry
        self._meters = Meters(self._telemetry, spec=spec, statistics=self._statistics)
        self._intake_meters = IntakeMeters(self._telemetry, self._ledger, self._queue)
        if self._batches.shared is not None:
            self._meters.watch_replay(self._batches.shared)
        self._meters.run_env_frames.set(self._env_frames)
        self._meters.checkpoint_updates.set(0 if checkpoint is None else self._statistics.learner_updates)
        run_name = f"{settings.name} agent {agent}" if settings.agents > 1 else settings.name
        self._run = Run(self._run_dir, run_name, settings.model_dump(mode="json"))
        self._files = RunFiles(
            self._run_dir,
            self._meters.write_failed,
            make_trackers(settings.logging, self._run) if group.is_first else None,
            checkpoints.keep_copy(settings, self._run_dir, agent=agent, meters=self._meters) if group.is_first else None,
        )
        self._schedule = VersionSchedule(
            int(group.broadcast_object(self._open_lineage(least_lineage) if group.is_first else None)),
            is_first=group.is_first,
            num_shards=group.size,
        )
        self._io = IoThread(
            process.context,
            settings,
            process.identity,
            contract=self._origin.contract,
            layout=layout,
            spec=spec,
            ledger=self._ledger,
            queue=self._queue,
            meters=self._intake_meters,
            shard=(group.rank, group.size),
            population=None if self._population is None else self._population.client,
        )
        self._publication = Publication(settings, self._trainer, group, self._io, self._telemetry)
        self._records = Records(
            settings,
            self._run_dir,
            origin=self._origin,
            group=group,
            trainer=self._trainer,
            batches=self._batches,
            statistics=self._statistics,
            ledger=self._ledger,
            meters=self._meters,
            files=self._files,
            member=None if self._population is None else self._population.member,
            log=self._log,
        )
        process.announce("learner started", agent * group.size + group.rank, agent=agent, rank=group.rank)

    def __enter__(self) -> Learner:
        self._io.start()
        if self._batches.shared is not None:
            self._batches.shared.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._io.close()
        if self._batches.shared is not None:
            self._batches.shared.close()
        self._files.close()

    def train(self, stop: Stop, play: Callable[[], None] | None = None) -> None:
        """Take a batch, update and publish, until a stop condition or a signal in any shard. ``play``: see `run`."""
        settings, meters = self._settings, self._meters
        started = time.monotonic()
        # When each is due next: an interval after the end of the last one.
        point_at = started + settings.learner.log_interval_seconds
        save_at = started + settings.learner.checkpoint_interval_seconds
        report_at = started + settings.population.report_interval_seconds
        self._publish()
        self._telemetry.set_ready(True)
        now = started
        unrolls: list[QueuedUnroll] = []
        while True:
            self._telemetry.beat()
            if self._io.failure is not None:
                raise RuntimeError("the I/O thread died") from self._io.failure
            if self._batches.shared is not None and self._batches.shared.failure is not None:
                raise RuntimeError("the replay thread died") from self._batches.shared.failure
            self._record_episodes()
            self._publication.hand_over()
            is_over = bool(stop) or self._is_finished() or bool(self._divergence())
            if not unrolls and not is_over:
                unrolls = self._take(play)
            meters.waited(time.monotonic() - now)
            order = None if self._population is None else self._population.order  # as it is now: the next answer may take it back
            turn = self._agree(
                unrolls,
                stop=is_over,
                log_due=now >= point_at or self._statistics.start_is_due,
                checkpoint_due=now >= save_at,
                is_ordered=order is not None,
            )
            if turn.stop:
                break
            turn = self._schedule.enter(turn, self._publish)
            if turn.is_ready:
                self._trains_since = self._trains_since or now
                self._env_frames += turn.num_frames
                meters.run_env_frames.set(self._env_frames)
                unrolls = self._step(unrolls, has_replayed=turn.has_replayed, may_publish=turn.may_publish)
            elif turn.may_publish and self._schedule.is_due:
                self._publish()  # it waited for the version before; if all unrolls are too old, no update follows without it
            now = time.monotonic()
            if turn.log_due:
                self._log_point(now - started)
                point_at = now + settings.learner.log_interval_seconds
            if turn.checkpoint_due:
                self._checkpoint(now - started)
                return_free_memory()
                save_at = time.monotonic() + settings.learner.checkpoint_interval_seconds
            if turn.is_ordered:
                self._carry_out(order, now - started)
            if self._population is not None and (turn.is_ordered or now >= report_at):
                self._population.report()
                report_at = now + settings.population.report_interval_seconds
        self._end(stop, started, dismisses_actors=play is None)

    def _take(self, play: Callable[[], None] | None) -> list[QueuedUnroll]:
        """Return the unrolls of a batch; an empty list if they have not arrived yet."""
        unrolls, stale = self._queue.take(self._num_online, self._is_stale, BATCH_TIMEOUT_SECONDS if play is None else 0.0)
        self._drop(stale)
        if not unrolls and play is not None:
            play()
        return unrolls

    def _wait_for_replayed(self, unrolls: list[QueuedUnroll]) -> bool:
        """Return whether the replayed unrolls of the batch with these ``unrolls`` are ready or, if it is prepared, in it."""
        if self._prepared is not None:
            return self._prepared.num_replayed > 0
        if not unrolls or self._statistics.replay is None:
            return False
        started = time.monotonic()
        has_replayed = self._batches.wait_for_replayed()
        self._meters.spent(replay=time.monotonic() - started)
        return has_replayed

    def _end(self, stop: Stop, started: float, *, dismisses_actors: bool) -> None:
        """Write everything to disk, then leave the group. Actors are dismissed first if no other process stops them.

        A session without an update leaves the files as they are: it has nothing to add.

        Raises:
            BadInputError: training has diverged.
            LostAtEndError: writing to disk failed.
        """
        self._telemetry.set_ready(False, "stopping")
        is_over = any(self._group.gather(self._is_finished()))
        if self._settings.agents > 1 and self._group.is_first and is_over:
            self._io.end_agent(self._schedule.lineage)
        if self._population is not None:
            self._population.report_last(lambda: self._io.failure is None)
        is_last = is_over and self._settings.agents == 1 and not self._settings.stop.wait_for_signal
        if is_last and dismisses_actors and not is_supervised(self._settings.directory):
            self._io.dismiss_actors()
        self._publication.hand_over(wait=True)
        # From here on nothing may be acknowledged, because the last checkpoint would not include it.
        self._io.close()
        self._record_episodes()
        self._record(self._trainer.arrived(wait=True))
        divergence = next(filter(None, self._group.gather(self._divergence())), "")
        lost: list[str] = []
        if self._trains_since is None:
            self._log.info("nothing was trained in this session: the files of the run are as before")
        else:
            now = time.monotonic()
            self._log_point(now - started, is_last=True)
            if not divergence and not self._checkpoint(now - started) and not (divergence := self._divergence()):
                lost.append("the last checkpoint")
            if not self._records.write_report(now - started, now - self._trains_since, stop_reason=self._run.stop_reason):
                lost.append(REPORT)
        self._group.leave()

        def go_on() -> bool:
            self._telemetry.beat()
            return not stop

        is_copied = self._files.close(go_on)
        if divergence:
            raise BadInputError(f"{divergence}: lower optimizer.learning_rate or set optimizer.max_gradient_norm (docs/runbook.md)")
        if is_over and self._settings.stop.wait_for_signal:
            self._wait(stop, RUN_IS_OVER if is_copied else f"{RUN_IS_OVER}, but {COPY_IS_INCOMPLETE}")
        if lost:
            raise LostAtEndError(f"{self._run_dir}: {' and '.join(lost)} could not be written; the newest checkpoint on disk is older")

    def _wait(self, stop: Stop, readiness: str) -> None:
        """Wait after the end of the run; if this process exited, it would be restarted."""
        self._log.info(RUN_IS_OVER, env_frames=self._env_frames)
        self._telemetry.set_ready(True, readiness)
        self._meters.run_is_over.set(1)  # missing progress is no error any more
        while not stop:
            self._telemetry.beat()
            time.sleep(BATCH_TIMEOUT_SECONDS)

    def _agree(self, unrolls: list[QueuedUnroll], *, stop: bool, log_due: bool, checkpoint_due: bool, is_ordered: bool) -> Turn:
        """Agree with all shards on this turn; each shard contributes what it has and what is due by its clock."""
        has_replayed = not stop and self._wait_for_replayed(unrolls)
        started = time.monotonic()
        turn = self._group.agree(
            Turn(
                is_ready=bool(unrolls),
                stop=stop,
                log_due=log_due,
                checkpoint_due=checkpoint_due,
                may_publish=self._group.size == 1 or self._publication.may_follow,
                newer_lineage=self._io.newer_lineage or 0,
                lineage=self._schedule.lineage,
                num_frames=sum(unroll.num_frames for unroll in unrolls),
                is_ordered=is_ordered,
                has_replayed=has_replayed,
            )
        )
        self._meters.spent(agree=time.monotonic() - started)
        before = self._schedule.lineage
        turn = self._schedule.adopt(turn, self._open_lineage)
        if self._group.is_first and self._schedule.lineage != before:
            self._log.warning(
                "the parameter server has newer weights of another publisher", theirs=turn.newer_lineage, ours=self._schedule.lineage
            )
        return turn

    def _step(self, unrolls: list[QueuedUnroll], *, has_replayed: bool, may_publish: bool) -> list[QueuedUnroll]:
        """Do the updates on one batch, from queued unrolls to published weights. Return the next batch's unrolls if it is prepared.

        ``has_replayed``: whether all shards have replayed unrolls. If not, none trains on any, so that the batch's share is exact.
        """
        if self._prepared is not None and self._prepared.num_replayed and not has_replayed:
            self._begin_new_episodes()
        prepared = self._prepared if self._prepared is not None else self._prepare(unrolls, with_replayed=has_replayed)
        self._prepared = None
        self._trainer.begin(prepared.batch, prepared.num_replayed)
        ahead: list[QueuedUnroll] = []
        # No checkpoint is written between these updates, so frames count as consumed with the first one.
        for use in range(self._settings.learner.sample_reuse):
            is_last = use == self._settings.learner.sample_reuse - 1
            ahead = self._update_on(
                prepared, unrolls if use == 0 else [], may_publish=may_publish, works_ahead=is_last and self._works_ahead
            )
        if self._credit_bounds_lag:
            # Only now, so that unrolls started with this credit do not use the previous version.
            self._io.grant_again(len(unrolls))
        return ahead

    def _prepare(self, unrolls: list[QueuedUnroll], *, with_replayed: bool) -> Prepared:
        """Copy queued unrolls to tensors on the device; the copy may still be running."""
        started = time.monotonic()
        batches = self._batches
        buffer = batches.assemble(unrolls, with_replayed=with_replayed)
        if batches.shared is not None:
            batches.shared.consume(unrolls)
        if not self._credit_bounds_lag:
            self._io.grant_again(len(unrolls))
        assembled = time.monotonic()
        batch = self._trainer.to_device(buffer)
        self._meters.spent(assemble=assembled - started, host_to_device=time.monotonic() - assembled)
        return Prepared(batch, buffer.num_replayed, batches.replayed_versions, buffer.num_trained_rows)

    def _begin_new_episodes(self) -> None:
        """Take the replayed unrolls from the prepared batch, and begin new episodes in all replay slots."""
        if self._prepared is not None:
            self._prepared = self._prepared.without_replayed()
        if self._batches.shared is not None:
            self._batches.shared.begin_new_episodes()

    def _prepare_next(self) -> list[QueuedUnroll]:
        """Prepare the next batch, if it has arrived, while the device computes."""
        if self._batches.shared is not None and not self._batches.shared.is_ready:
            return []  # the device would have to wait too
        unrolls, stale = self._queue.take(self._num_online, self._is_stale, 0.0)
        self._drop(stale)
        if unrolls:
            self._prepared = self._prepare(unrolls, with_replayed=self._batches.wait_for_replayed())
        return unrolls

    def _update_on(self, prepared: Prepared, consumed: list[QueuedUnroll], *, may_publish: bool, works_ahead: bool) -> list[QueuedUnroll]:
        """Do one update; ``consumed`` are unrolls not used before. Return the next batch's unrolls if it is prepared.

        On a GPU the work is only queued, and the update's numbers arrive after a later one.
        """
        started = time.monotonic()
        rates = self._rates()
        launched = self._trainer.launch(prepared.batch)
        after_backward = time.monotonic()
        self._trainer.finish(launched, rates)
        after_optimizer = time.monotonic()
        ahead = self._prepare_next() if works_ahead else []
        before_arrivals = time.monotonic()
        arrived = self._trainer.arrived()
        device_seconds = time.monotonic() - before_arrivals

        for unroll in consumed:
            lag = max(0, self._statistics.learner_updates - unroll.policy_version[1])
            self._statistics.record_consumed(unroll.task_id, unroll.num_frames, lag)
            self._meters.consumed(unroll, lag)
        self._ledger.consume(frames_by_task(consumed))
        if self._statistics.replay is not None:
            staleness = [max(0, self._statistics.learner_updates - updates) for _, updates in prepared.replayed_versions]
            self._statistics.replay.record(prepared.num_trained_rows, staleness)
            self._meters.replayed(prepared.num_replayed, staleness)
        self._statistics.count_update(self._settings.num_online_unrolls)
        self._record(arrived)
        self._schedule.updated(self._statistics.learner_updates, self._settings.learner.publish_interval_updates)
        publish_seconds = 0.0
        if self._schedule.is_due and may_publish:
            publishes_at = time.monotonic()
            self._publish()
            publish_seconds = time.monotonic() - publishes_at
        self._meters.updated(
            rates.learning_rate,
            forward_backward=after_backward - started + device_seconds,
            optimizer=after_optimizer - after_backward,
            publish=publish_seconds,
        )
        return ahead

    def _record(self, arrived: list[UpdateStatistics]) -> None:
        """Record updates whose statistics have arrived."""
        for update in arrived:
            self._statistics.record_update(update)
            self._meters.update_arrived(update)
            if not update.is_finite:
                self._log.error("update skipped: the gradient is not finite", learner_updates=self._statistics.learner_updates)

    def _record_episodes(self) -> None:
        while self._io.episodes:
            self._meters.episode(*self._io.episodes.popleft())

    def _divergence(self) -> str:
        """Say why no further update can be made; empty if one can."""
        if self._publication.is_unusable or self._records.is_unusable:
            return f"the weights or the optimizer's state are not finite after {self._statistics.learner_updates:,} updates"
        if self._statistics.num_skipped_in_a_row >= MAX_SKIPPED_UPDATES:
            return f"the gradients of {MAX_SKIPPED_UPDATES} updates in a row were not finite"
        return ""

    def _is_finished(self) -> bool:
        """Whether a stop condition is met or a tracker has stopped the run; ``stop.wall_seconds`` counts from the first update on."""
        stop = self._settings.stop
        if self._run.stop_reason or (stop.env_frames is not None and self._env_frames >= stop.env_frames):
            return True
        return (
            stop.wall_seconds is not None and self._trains_since is not None and time.monotonic() - self._trains_since >= stop.wall_seconds
        )

    @property
    def _credit_bounds_lag(self) -> bool:
        return self._settings.actor.credit == "before_unroll"

    def _is_stale(self, unroll: QueuedUnroll) -> bool:
        newest = (self._schedule.lineage, self._statistics.learner_updates)
        return is_stale(unroll.policy_version, newest, self._settings.learner.max_policy_lag)

    def _drop(self, stale: list[QueuedUnroll]) -> None:
        if not stale:
            return
        self._ledger.drop(STALE, frames_by_task(stale))
        self._intake_meters.dropped(len(stale), STALE)
        self._io.grant_again(len(stale))

    def _rates(self) -> Rates:
        return self._settings.optimizer.rates(env_frames=self._env_frames, learner_updates=self._statistics.learner_updates)

    def _publish(self) -> None:
        self._schedule.published()
        self._publication.publish(self._schedule.lineage, self._statistics.learner_updates)

    def _open_lineage(self, at_least: int) -> int:
        return open_lineage(self._run_dir, at_least, on_failure=lambda error: self._files.failed(LINEAGE, error))

    def _log_point(self, session_seconds: float, *, is_last: bool = False) -> None:
        self._records.log_point(session_seconds, learning_rate=self._rates().learning_rate, lineage=self._schedule.lineage, is_last=is_last)

    def _checkpoint(
        self, session_seconds: float, *, donor: Mapping[str, Mapping[str, Tensor]] | None = None, after: Membership | None = None
    ) -> bool:
        return self._records.checkpoint(session_seconds, lineage=self._schedule.lineage, donor=donor, after=after)

    def _carry_out(self, order: Order | None, session_seconds: float) -> None:
        """Carry out an order of the population completely or not at all, on all shards together. ``order``: on shard 0 only."""
        assert self._population is not None
        self._records.merge_deltas()
        done = self._population.carry_out(order, lambda donor, after: self._checkpoint(session_seconds, donor=donor, after=after))
        member = self._population.member
        if done is None:
            self._log.warning("an order of the population was not carried out", reason=member.declined_reason)
            return
        self._log.info("an order of the population was carried out", **member.point())
        self._settings = done.settings
        if done.is_copy:
            self._begin_new_episodes()
            # The number of updates now belongs to other weights, so open a new lineage, which all shards adopt in the next turn.
            self._schedule.lineage = int(
                self._group.broadcast_object(self._open_lineage(self._schedule.lineage + 1) if self._group.is_first else None)
            )

    def _join_population(self, process: ServiceProcess) -> PopulationLink | None:
        settings, own = self._settings, self._settings.population
        if own.strategy == "none":
            return None
        window = FitnessWindow(process.spec.task_names, suite_of(settings.env).reference_scores(), num_games=own.fitness_episodes)
        self._statistics.fitness = window
        member = Member(Membership(settings=settings.own_values), window, fitness=own.fitness)
        client = None
        if self._group.is_first:
            client = PopulationClient(process.context, process.identity.address("population"), interval_seconds=own.report_interval_seconds)
        return PopulationLink(
            settings,
            process.identity.agent or 0,
            member=member,
            origin=self._origin,
            group=self._group,
            trainer=self._trainer,
            statistics=self._statistics,
            client=client,
        )
