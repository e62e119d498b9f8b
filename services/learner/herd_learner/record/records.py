"""What a learner writes of its run: points of the learning curve, checkpoints and the report, over all shards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from herd.components.suites import environment_spec
from herd.config.run_contract import learner_inputs
from herd.files import replace_file
from herd.run.checkpoints import CheckpointError, NotFiniteError
from herd.run.journals import METRICS, add_point
from herd.run.paths import LINEAGE, REPORT
from herd.service.host import describe_hardware
from herd.telemetry.logs import get_logger, warn_limited
from herd_learner.intake.ledger import LedgerSnapshot
from herd_learner.record import checkpoints
from herd_learner.record.lineage import keep_lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from structlog.stdlib import BoundLogger
    from torch import Tensor

    from herd.components.trackers.publishing import Trackers
    from herd.config.run import RunSettings
    from herd.config.run_contract import Origin
    from herd.run.copies import RunCopy
    from herd.training.trainer import Trainer
    from herd_learner.batches.assembler import BatchAssembler
    from herd_learner.group.collectives import ShardGroup
    from herd_learner.intake.ledger import Ledger
    from herd_learner.population.member import Member, Membership
    from herd_learner.record.meters import Meters
    from herd_learner.record.statistics import RunStatistics


class RunFiles:
    """Failures are counted, and logged once a minute. Later writes are tried as usual."""

    def __init__(
        self, run_dir: Path, on_failure: Callable[[str], None], trackers: Trackers | None = None, copy: RunCopy | None = None
    ) -> None:
        """``on_failure`` gets the name of each file that could not be written.

        ``trackers`` also get every point and checkpoint; ``copy`` is woken after each checkpoint.
        """
        self._run_dir = run_dir
        self._on_failure = on_failure
        self._trackers = trackers
        self._copy = copy

    def close(self, go_on: Callable[[], bool] = bool) -> bool:
        """Let trackers and the copy of the run finish; both are bounded, the copy to seconds once ``go_on`` is false. Callable twice.

        Returns whether the copy, if there is one, has everything.
        """
        if self._copy is not None:
            self._copy.begin_close()
        if self._trackers is not None:
            self._trackers.close()
        is_copied = self._copy is None or self._copy.close(go_on)
        if not is_copied:
            get_logger().error("the copy of the run is not complete", reason="the storage failed or is slow", directory=str(self._run_dir))
        self._copy = None
        return is_copied

    def add_point(self, point: Mapping[str, Any]) -> None:
        """Append a point of the learning curve. A point that cannot be written is lost."""
        if self._trackers is not None:
            self._trackers.add(point)
        try:
            add_point(self._run_dir, point)
        except OSError as error:
            self.failed(METRICS, error)

    def checkpoint_written(self, directory: Path) -> None:
        """Tell the trackers of a checkpoint, and begin to copy it, which happens in another thread."""
        if self._trackers is not None:
            self._trackers.add_checkpoint(directory)
        if self._copy is not None:
            self._copy.wake()

    def write_report(self, report: Mapping[str, Any]) -> bool:
        """Replace the report; False if it could not be written."""
        try:
            replace_file(self._run_dir / REPORT, json.dumps(report, indent=2) + "\n")
        except OSError as error:
            self.failed(REPORT, error)
            return False
        return True

    def keep_lineage(self, lineage: int) -> None:
        """Write the lineage if it could not be written when it was opened."""
        try:
            keep_lineage(self._run_dir, lineage)
        except OSError as error:
            self.failed(LINEAGE, error)

    def failed(self, file: str, error: OSError) -> None:
        """Count and log that ``file`` could not be written."""
        self._on_failure(file)
        warn_limited(f"write {file}", "cannot write a file of the run", file=str(self._run_dir / file), reason=error.strerror or str(error))


class Records:
    """The methods are collective: all shards call them together, and only the first shard writes."""

    def __init__(
        self,
        settings: RunSettings,
        run_dir: Path,
        *,
        origin: Origin,
        group: ShardGroup,
        trainer: Trainer,
        batches: BatchAssembler,
        statistics: RunStatistics,
        ledger: Ledger,
        meters: Meters,
        files: RunFiles,
        member: Member | None,
        log: BoundLogger,
    ) -> None:
        """``member``: of a population; None without one."""
        self.is_unusable = False
        """Whether a checkpoint was not written because it is not finite."""
        self._settings = settings
        self._run_dir = run_dir
        self._origin = origin
        self._group = group
        self._trainer = trainer
        self._batches = batches
        self._statistics = statistics
        self._ledger = ledger
        self._meters = meters
        self._files = files
        self._member = member
        self._log = log

    def merge_deltas(self) -> None:
        """Add the deltas of the other shards to the statistics of shard 0, which are the run's."""
        for delta in self._group.gather(self._statistics.delta())[1:]:
            if self._group.is_first:
                self._statistics.merge(delta)

    def log_point(self, session_seconds: float, *, learning_rate: float, lineage: int, is_last: bool = False) -> None:
        """Add a point to the learning curve. ``is_last``: at the end of the session, if it says more than the last one."""
        self.merge_deltas()
        self._statistics.logged()
        rates = self._group.gather(self._meters.frames_per_second())
        is_due = not is_last or self._statistics.last_point_is_due or (self._member is not None and self._member.has_unlogged_order)
        if not self._group.is_first or not is_due:
            return
        point = self._statistics.point(
            session_seconds=session_seconds,
            frames_per_second=None if None in rates else sum(rates),
            learning_rate=learning_rate,
            by_task=self._trainer.values_by_task(),
            clipping_shortens=self._settings.optimizer.clipping_shortens,
            is_last=is_last,
        )
        if self._member is not None:
            point["population"] = self._member.point()
        self._files.add_point(point)
        if self._member is not None:
            self._member.logged(point)
        self._meters.human_normalised(self._statistics.human_normalised_mean_capped)
        self._files.keep_lineage(lineage)

    def checkpoint(
        self,
        session_seconds: float,
        *,
        lineage: int,
        donor: Mapping[str, Mapping[str, Tensor]] | None = None,
        after: Membership | None = None,
    ) -> bool:
        """Write a checkpoint; return False if that failed.

        ``donor``: tensors that replace the learner's own, except for the random state; ``after``: another membership for the checkpoint.
        """
        self.merge_deltas()
        ledger = self._global_ledger()
        replay = self._batches.replay
        replay_random = self._group.gather(replay.random.bit_generator.state if replay is not None else None)
        tensors = checkpoints.tensors_of(self._trainer)
        if donor is not None:
            tensors = {file: dict(named) for file, named in donor.items()} | {"random": tensors["random"]}
        if not self._group.is_first:
            return True
        try:
            path = checkpoints.save(
                self._run_dir,
                tensors,
                origin=self._origin,
                learner_updates=self._statistics.learner_updates,
                lineage=lineage,
                ledger=ledger.as_json(),
                statistics=self._statistics.as_json(session_seconds),
                replay_random=[] if replay is None else replay_random,
                population=None if self._member is None else self._member.as_json(after),
                keep=self._settings.learner.keep_checkpoints,
            )
        except CheckpointError as error:
            self.is_unusable = isinstance(error, NotFiniteError)
            # The run is worth more than one checkpoint: the last one stays, and the write is tried again after the next interval.
            self._meters.checkpoint_failures.inc()
            self._log.error("checkpoint failed", reason=str(error))
            return False
        if self._member is not None:
            self._member.checkpoint = (self._statistics.learner_updates, self._statistics.env_frames)
        self._meters.checkpoint_written(self._statistics.learner_updates)
        self._files.checkpoint_written(path)
        self._log.info("checkpoint", path=str(path))
        return True

    def write_report(self, session_seconds: float, training_seconds: float, *, stop_reason: str = "") -> bool:
        """Replace report.json; return False if that failed.

        ``training_seconds`` count from the session's first batch; ``stop_reason``: of a tracker that has stopped the run.
        """
        ledger = self._global_ledger()
        if not self._group.is_first:
            return True
        report = self._statistics.report(ledger, session_seconds=session_seconds, training_seconds=training_seconds)
        device = next(self._trainer.agent.parameters()).device
        report["machine"] = describe_hardware() | {"device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type}
        report["learns_from"] = learner_inputs(self._settings, environment_spec(self._settings.env))
        if stop_reason:
            report["stopped"] = stop_reason
        if self._batches.shared is not None:
            report["replay"]["discarded_episodes"] = self._batches.shared.num_discarded_episodes
        if self._member is not None:
            report["population"] = self._member.report()
        elif values := self._settings.own_values:
            report["sweep"] = values
        return self._files.write_report(report)

    def _global_ledger(self) -> LedgerSnapshot:
        snapshots = self._group.gather(self._ledger.snapshot().as_json())
        return LedgerSnapshot.of_shards([LedgerSnapshot.from_json(each) for each in snapshots])
