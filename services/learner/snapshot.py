"""What a learner's checkpoint holds, and how a learner starts from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from herd.checkpoints.store import Checkpoint, CheckpointError, load_checkpoint, newest_checkpoint, save_checkpoint
from herd.checkpoints.weights import load_into

if TYPE_CHECKING:
    from pathlib import Path

    from services.learner.replay import UnrollReplay
    from services.learner.update import Update

CHECKPOINTS = "checkpoints"


def save(
    run_dir: Path,
    update: Update,
    *,
    contract: str,
    learner_updates: int,
    lineage: int,
    ledger: dict[str, Any],
    statistics: dict[str, Any],
    replay: UnrollReplay | None,
    keep: int,
) -> Path:
    """Write a checkpoint: parameters, optimizer, random states, counters and the accounts that drop duplicates.

    Replay's contents are not part of it: they refill within ``replay.capacity_unrolls`` unrolls.

    Raises:
        CheckpointError: it could not be written; the one before stays.
    """
    state = {
        "contract": contract,
        "learner_updates": learner_updates,
        "lineage": lineage,
        "ledger": ledger,
        "statistics": statistics,
        "replay_random": replay.random.bit_generator.state if replay is not None else None,
    }
    tensors = {
        "model": {name: tensor.detach().cpu() for name, tensor in update.agent.state_dict().items()},
        "optimizer": update.optimizer_tensors(),
        "random": {"torch": torch.get_rng_state()},
    }
    return save_checkpoint(run_dir / CHECKPOINTS, learner_updates, tensors, state, keep)


def load_newest(run_dir: Path) -> Checkpoint | None:
    """The newest complete checkpoint of a run, None where there is none."""
    path = newest_checkpoint(run_dir / CHECKPOINTS)
    return None if path is None else load_checkpoint(path)


def restore(checkpoint: Checkpoint, update: Update, *, contract: str, replay: UnrollReplay | None) -> None:
    """Set parameters, optimizer and random states.

    Raises:
        CheckpointError: the checkpoint belongs to another network or environment.
    """
    if checkpoint.state["contract"] != contract:
        raise CheckpointError(
            f"{checkpoint.path}: made by another network or environment (contract {checkpoint.state['contract'][:12]}, "
            f"this run has {contract[:12]}); resume with the configuration it was made with"
        )
    load_into(update.agent, checkpoint.tensors["model"])
    update.load_optimizer_tensors(checkpoint.tensors["optimizer"])
    torch.set_rng_state(checkpoint.tensors["random"]["torch"])
    if replay is not None and checkpoint.state["replay_random"] is not None:
        replay.random.bit_generator.state = checkpoint.state["replay_random"]
