"""The contents of a learner's checkpoint, and how a learner is restored from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from herd.files import FileError
from herd.run import copies
from herd.run import tensors as checkpoint_files
from herd.run.checkpoints import CheckpointError, ForeignCheckpointError
from herd.run.paths import CHECKPOINTS, checkpoint_folders
from herd.run.processes import is_supervised
from herd.run.tensors import Checkpoint, save_checkpoint
from herd.telemetry.logs import get_logger
from herd_learner.intake.ledger import Ledger, LedgerSnapshot
from herd_learner.record.lineage import checked_lineage
from herd_learner.record.statistics import RunStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from herd.components.suites.scores import ReferenceScores
    from herd.config.run import RunSettings
    from herd.config.run_contract import Origin
    from herd.contract.spaces import EnvSpec
    from herd.protocols.bandit.tiling import Tiling
    from herd.training.trainer import Trainer
    from herd_learner.batches.local import UnrollReplay
    from herd_learner.group.collectives import ShardGroup
    from herd_learner.record.meters import Meters

RANDOM = "random"
"""File of a checkpoint with the state of torch's random numbers."""
POPULATION = "population"
"""Key in a checkpoint's state of the member of a population that wrote it."""


class Restored(NamedTuple):
    """The counters that a learner starts with."""

    statistics: RunStatistics
    ledger: Ledger
    least_lineage: int
    """The lowest lineage not published yet, according to the checkpoint."""


def tensors_of(trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of a checkpoint, by file. All shards must call this together."""
    parts = {file: tensors for file, part in trainer.parts.items() if (tensors := part.tensors())}
    return parts | {RANDOM: {"torch": torch.get_rng_state()}}


def save(
    run_dir: Path,
    tensors: dict[str, dict[str, Tensor]],
    *,
    origin: Origin,
    learner_updates: int,
    lineage: int,
    ledger: dict[str, Any],
    statistics: dict[str, Any],
    replay_random: list[Any],
    population: dict[str, Any] | None = None,
    keep: int,
) -> Path:
    """Write a checkpoint: ``tensors_of`` the trainer, counters and the ledgers that detect duplicates.

    ``ledger``, ``statistics`` and ``replay_random`` (by rank) cover all shards; ``population`` is the state of a member of one.

    The contents of replay are not saved: replay refills within ``replay.capacity_unrolls`` unrolls.

    Raises:
        CheckpointError: it could not be written; the previous one remains.
    """
    state = {
        **origin.as_json(),
        "learner_updates": learner_updates,
        "lineage": lineage,
        "ledger": ledger,
        "statistics": statistics,
        "replay_random": replay_random,
        **({} if population is None else {POPULATION: population}),
    }
    return save_checkpoint(run_dir / CHECKPOINTS, learner_updates, tensors, state, keep)


def load_newest(run_dir: Path, origin: Origin) -> Checkpoint | None:
    """Return the newest complete checkpoint of this run; None if it has no checkpoints.

    Raises:
        CheckpointError: there are checkpoints but none can be used; one line with the reasons.
    """

    def accept(checkpoint: Checkpoint) -> None:
        objection = origin.objection(checkpoint.state)
        if objection is not None:
            raise ForeignCheckpointError(f"{checkpoint.path}: {objection}")

    return checkpoint_files.load_newest(run_dir / CHECKPOINTS, accept)


def load_to_resume(settings: RunSettings, run_dir: Path, origin: Origin) -> Checkpoint | None:
    """Return the checkpoint that a start with these settings continues from, on the disk or in the copy of the run; None if it begins anew.

    Raises:
        CheckpointError: as `load_newest`; or the copy of the run cannot be used, and the disk has no checkpoint.
    """
    _restore_copy(settings, run_dir)
    return load_newest(run_dir, origin) if settings.resume else None


def _restore_copy(settings: RunSettings, directory: Path) -> None:
    """Fetch what a resumption needs from the copy of the run, if the copy is ahead of the disk. Without ``resume``, refuse a used copy.

    Raises:
        CheckpointError: the copy cannot be used, and the disk has no checkpoint to continue from.
    """
    if settings.copy_to is None or is_supervised(settings.directory):
        return  # ``herd train`` has done it
    folder = copies.folder_of(directory, settings.directory)
    try:
        storage = copies.Storage(settings.copy_to)
        if not settings.resume:
            copies.check_unused(storage, folder)
        else:
            copies.restore(storage, directory, copies.AGENT_FILES, folder=folder, extra=() if folder else copies.START_FILES)
    except FileError as error:
        if not settings.resume or not checkpoint_folders(directory):
            raise CheckpointError(str(error)) from error
        get_logger().warning("continuing from the disk: the copy of the run cannot be used", reason=str(error))


def keep_copy(settings: RunSettings, directory: Path, *, agent: int, meters: Meters) -> copies.RunCopy | None:
    """Start the thread that keeps the copy of this agent's files up to date; None if the run has no copy."""
    if (address := settings.copy_to) is None:
        return None
    folder = copies.folder_of(directory, settings.directory)
    keep = settings.learner.keep_checkpoints

    def make() -> Callable[[], int | None]:
        storage = copies.Storage(address)
        files = copies.AGENT_FILES if folder else (*copies.RUN_FILES, *copies.AGENT_FILES)
        own = copies.Copier(storage, directory, files, folder=folder, keep=keep)
        if not folder or agent:
            return own.update
        of_run = copies.Copier(storage, settings.directory, copies.RUN_FILES)

        def update() -> int | None:
            copied = own.update()
            of_run.update()
            return copied

        return update

    copy = copies.RunCopy(make, lambda updates: meters.copy_updates.set(updates or 0), meters.copy_failures.inc)
    copy.wake()
    return copy


def load_of_member(run_dir: Path, learner_updates: int, origin: Origin, own: Mapping[str, Mapping[str, Tensor]]) -> Checkpoint:
    """Return another member's checkpoint with this number; its tensors must have the names and shapes of ``own``.

    Raises:
        CheckpointError: it no longer exists, is damaged, or belongs to another network; one line.
    """
    checkpoint = checkpoint_files.load_checkpoint(run_dir / CHECKPOINTS / f"{learner_updates:012d}")
    objection = origin.objection(checkpoint.state)
    if objection is not None:
        raise ForeignCheckpointError(f"{checkpoint.path}: {objection}")
    # An optimizer is empty before its first update; afterwards it has the network's tensors, once for each slot.
    kept = own.keys() - {"optimizer", RANDOM}
    if any(_shapes(checkpoint.tensors.get(file, {})) != _shapes(own[file]) for file in kept):
        raise ForeignCheckpointError(f"{checkpoint.path}: its tensors do not belong to this network")
    return checkpoint


def broadcast(checkpoint: Checkpoint | None, group: ShardGroup) -> Checkpoint | None:
    """Send shard 0's checkpoint to every shard, so that only shard 0 needs it on disk."""
    told = None
    if checkpoint is not None:
        told = [str(checkpoint.path), checkpoint.learner_updates, checkpoint.state, list(checkpoint.tensors)]
    told = group.broadcast_object(told)
    if told is None:
        return None
    path, learner_updates, state, files = told
    own = {} if checkpoint is None else {f"{file}/{name}": t for file, named in checkpoint.tensors.items() for name, t in named.items()}
    tensors: dict[str, dict[str, Tensor]] = {file: {} for file in files}
    for key, tensor in group.broadcast(own).items():
        file, _, name = key.partition("/")
        tensors[file][name] = tensor
    return Checkpoint(Path(path), learner_updates, tensors, state)


def restore_counters(
    checkpoint: Checkpoint | None,
    spec: EnvSpec,
    tiling: Tiling | None = None,
    *,
    references: Mapping[str, ReferenceScores] | None = None,
    is_first: bool = True,
) -> Restored:
    """Return the counters and ledgers of a checkpoint, or of a new run; ``is_first``: this shard's totals continue those of the run.

    Raises:
        CheckpointError: its state is not that of a learner.
    """
    if checkpoint is None:
        return Restored(RunStatistics(spec, tiling=tiling, references=references, is_first=is_first), Ledger(), 1)
    state = checkpoint.state
    try:
        saved = LedgerSnapshot.from_json(state["ledger"])
        ledger = Ledger(saved if is_first else saved.without_totals())
        statistics = RunStatistics(spec, state["statistics"], tiling, references=references, is_first=is_first)
        return Restored(statistics, ledger, checked_lineage(state["lineage"]) + 1)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _not_a_learners(checkpoint, error) from error


def restore(checkpoint: Checkpoint, trainer: Trainer, *, replay: UnrollReplay | None, rank: int = 0) -> None:
    """Restore what `tensors_of` returns. A shard added since then starts with a new random state for replay.

    Raises:
        CheckpointError: a tensor is missing or does not match.
    """
    adopt(checkpoint, trainer)
    try:
        torch.set_rng_state(checkpoint.tensors[RANDOM]["torch"])
        replays = checkpoint.state.get("replay_random") or []
        if replay is not None and rank < len(replays):
            replay.random.bit_generator.state = replays[rank]
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _not_a_learners(checkpoint, error) from error


def adopt(checkpoint: Checkpoint, trainer: Trainer) -> None:
    """Continue from another learner's checkpoint: take its weights, optimizer and value statistics, but not its random state.

    Raises:
        CheckpointError: a tensor is missing or does not match.
    """
    try:
        for file, part in trainer.parts.items():
            part.load(checkpoint.tensors.get(file, {}))
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _not_a_learners(checkpoint, error) from error


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _not_a_learners(checkpoint: Checkpoint, error: Exception) -> CheckpointError:
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    return CheckpointError(f"{checkpoint.path}: is intact, but does not have the contents of a learner's checkpoint ({cause[:200]})")
