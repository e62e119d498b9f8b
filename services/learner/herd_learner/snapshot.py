"""What a learner's checkpoint holds, and how a learner starts from one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from herd.checkpoints import store
from herd.checkpoints.store import Checkpoint, CheckpointError, ForeignCheckpointError, save_checkpoint
from herd.learning.auxiliary import AUXILIARY
from herd.learning.control import CONTROL
from herd.learning.value_scaling import VALUE_STATISTICS
from herd_learner.ledger import Ledger, LedgerSnapshot
from herd_learner.statistics import RunStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from herd.config.contract import EnvSpec
    from herd.config.origin import Origin
    from herd.config.tiling import Tiling
    from herd.envs.scores import ReferenceScores
    from herd.learning.trainer import Trainer
    from herd_learner.replay import UnrollReplay
    from herd_learner.shards.group import ShardGroup

CHECKPOINTS = "checkpoints"
POPULATION = "population"
"""The part of a checkpoint's state that says what member of a population it is of."""


class Restored(NamedTuple):
    """The counters that a learner begins with."""

    statistics: RunStatistics
    ledger: Ledger
    least_lineage: int
    """The lowest lineage that was not published yet, as far as the checkpoint knows."""


def tensors_of(trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """What a checkpoint holds of tensors, by file. Every shard asks at once."""
    tensors = {
        "model": _on_the_host(trainer.weights()),
        "optimizer": trainer.optimizer_tensors(),
        "random": {"torch": torch.get_rng_state()},
    }
    optional = {
        VALUE_STATISTICS: trainer.value_statistics(),
        AUXILIARY: _on_the_host(trainer.auxiliary_weights()),
        CONTROL: trainer.control_tensors(),
    }
    return tensors | {file: named for file, named in optional.items() if named}


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
    """Write a checkpoint: ``tensors_of`` the trainer, counters and the accounts that drop duplicates.

    ``ledger``, ``statistics`` and ``replay_random`` (by rank) are of all shards together; ``population``: as what member of one.

    Replay's contents are not part of it: they refill within ``replay.capacity_unrolls`` unrolls.

    Raises:
        CheckpointError: it could not be written; the one before stays.
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
    """The newest checkpoint of a run that is whole and its own, None where it has none at all.

    Raises:
        CheckpointError: there are some, and none can be used; one line that says why.
    """

    def accept(checkpoint: Checkpoint) -> None:
        objection = origin.objection(checkpoint.state)
        if objection is not None:
            raise ForeignCheckpointError(f"{checkpoint.path}: {objection}")

    return store.load_newest(run_dir / CHECKPOINTS, accept)


def load_of_member(run_dir: Path, learner_updates: int, origin: Origin, own: Mapping[str, Mapping[str, Tensor]]) -> Checkpoint:
    """The checkpoint of that number of another member of this run; of ``own`` tensors' names and shapes.

    Raises:
        CheckpointError: it is not there any more, damaged, or of another network; one line.
    """
    checkpoint = store.load_checkpoint(run_dir / CHECKPOINTS / f"{learner_updates:012d}")
    objection = origin.objection(checkpoint.state)
    if objection is not None:
        raise ForeignCheckpointError(f"{checkpoint.path}: {objection}")
    # Before its first update an optimizer holds nothing; its tensors are the network's, once for each slot.
    kept = {file for file in own if file not in {"optimizer", "random"}}
    theirs = {file: _shapes(checkpoint.tensors.get(file, {})) for file in kept - {CONTROL}}
    if theirs != {file: _shapes(own[file]) for file in kept - {CONTROL}}:
        raise ForeignCheckpointError(f"{checkpoint.path}: its tensors do not belong to this network")
    return checkpoint


def spread(checkpoint: Checkpoint | None, group: ShardGroup) -> Checkpoint | None:
    """Shard 0's checkpoint on every shard: only its disk needs to hold one."""
    told = None
    if checkpoint is not None:
        told = [str(checkpoint.path), checkpoint.learner_updates, checkpoint.state, list(checkpoint.tensors)]
    told = group.first_says(told)
    if told is None:
        return None
    path, learner_updates, state, files = told
    own = {} if checkpoint is None else {f"{file}/{name}": t for file, named in checkpoint.tensors.items() for name, t in named.items()}
    tensors: dict[str, dict[str, Tensor]] = {file: {} for file in files}  # before the first update, the optimizer's is empty
    for key, tensor in group.spread(own).items():
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
    """Counters and accounts of a checkpoint, or of a run that begins; ``is_first``: this shard's totals go on from the run's.

    Raises:
        CheckpointError: its state is not a learner's.
    """
    if checkpoint is None:
        return Restored(RunStatistics(spec, tiling=tiling, references=references, is_first=is_first), Ledger(), 1)
    state = checkpoint.state
    try:
        saved = LedgerSnapshot.from_json(state["ledger"])
        ledger = Ledger(saved if is_first else saved.without_totals())
        statistics = RunStatistics(spec, state["statistics"], tiling, references=references, is_first=is_first)
        return Restored(statistics, ledger, int(state["lineage"]) + 1)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _not_a_learners(checkpoint, error) from error


def restore(checkpoint: Checkpoint, trainer: Trainer, *, replay: UnrollReplay | None, rank: int = 0) -> None:
    """Set what `tensors_of` gives. A shard that was not there when it was written draws from replay as one that begins.

    Raises:
        CheckpointError: a tensor does not fit, or one is missing.
    """
    adopt(checkpoint, trainer)
    try:
        torch.set_rng_state(checkpoint.tensors["random"]["torch"])
        replays = checkpoint.state.get("replay_random") or []
        if replay is not None and rank < len(replays):
            replay.random.bit_generator.state = replays[rank]
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _not_a_learners(checkpoint, error) from error


def adopt(checkpoint: Checkpoint, trainer: Trainer) -> None:
    """Learn from here as the learner would that wrote it: weights, optimizer, value statistics, control; randomness stays one's own.

    Raises:
        CheckpointError: a tensor does not fit, or one is missing.
    """
    try:
        trainer.load_weights(checkpoint.tensors["model"])
        trainer.load_auxiliary_weights(checkpoint.tensors.get(AUXILIARY, {}))
        trainer.load_optimizer_tensors(checkpoint.tensors["optimizer"])
        trainer.load_value_statistics(checkpoint.tensors.get(VALUE_STATISTICS, {}))
        trainer.load_control_tensors(checkpoint.tensors.get(CONTROL, {}))
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _not_a_learners(checkpoint, error) from error


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _on_the_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def _not_a_learners(checkpoint: Checkpoint, error: Exception) -> CheckpointError:
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    return CheckpointError(f"{checkpoint.path}: is intact, but does not have the contents of a learner's checkpoint ({cause[:200]})")
