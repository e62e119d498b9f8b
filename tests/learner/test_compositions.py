"""The parts of a run combine: every pair of two choices trains together, on what its own policy plays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from herd_learner.batches.assembler import BatchAssembler
from herd_learner.intake.queue import QueuedUnroll

from herd.acting.policy import LocalPolicy
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.protocols.population.messages import Copied, Order, OwnSetting
from herd.training.batch import BatchBuffer
from tests.acting.playing import Unroll, make_group, play_unroll
from tests.learner.members import MemberLearner

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_UPDATES = 20
LOSSES: dict[str, dict[str, Any]] = {
    "impala": {"kind": "impala"},
    "dice": {"kind": "dice"},
    "laser": {"kind": "impala", "trust_region": "implied"},
}
SCALINGS = ("none", "multi_head", "popart")
REPLAYS = ("none", "local", "shared")
CORES = ("none", "lstm")
AUXILIARIES = ("none", "pixel_control")
STRATEGIES = ("none", "pbt")
BATCH_SIZE, NUM_REPLAYED = 4, 2


class Cell(NamedTuple):
    loss: str
    scaling: str
    core: str
    replay: str
    auxiliary: str
    strategy: str

    def __str__(self) -> str:
        return "-".join(self)


def pairwise(choices: Sequence[Sequence[str]]) -> list[Cell]:
    """Few cells in which every pair of choices of two parts occurs: each new one has the most pairs that are still missing."""

    def pairs(cell: Sequence[str]) -> set[tuple[tuple[int, str], tuple[int, str]]]:
        return set(combinations(enumerate(cell), 2))

    candidates = list(product(*choices))
    missing = set().union(*map(pairs, candidates))
    chosen = []
    while missing:
        best = max(candidates, key=lambda cell: len(pairs(cell) & missing))
        missing -= pairs(best)
        chosen.append(Cell(*best))
    return chosen


CELLS = pairwise((tuple(LOSSES), SCALINGS, CORES, REPLAYS, AUXILIARIES, STRATEGIES))


def experiment_of(cell: Cell) -> dict[str, Any]:
    """An experiment of two Catch tasks, with as little as each part needs."""
    replay: dict[str, Any] = {"kind": cell.replay}
    if cell.replay != "none":
        replay["fraction"] = NUM_REPLAYED / BATCH_SIZE
    if cell.replay == "local":
        replay |= {"capacity_unrolls": 16, "minimum_fill_unrolls": 4}
    population = {"strategy": cell.strategy, "fitness": "episode_return", "fitness_episodes": 3, "burn_in_env_frames": 0}
    sweep = {"optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-4, "high": 1e-2}} if cell.strategy == "pbt" else {}
    return {
        "agents": 2 if cell.strategy == "pbt" else 1,
        "sweep": sweep,
        "population": population,
        "env": {
            "suite": "catch",
            "tasks": ["catch", "catch_instructed"],
            "frame_height": 8,
            "frame_width": 8,
            "frame_stack": 2,
            "action_repeat": 1,
        },
        "network": {
            "torso": "mlp",
            "core": {"kind": cell.core, **({"size": 8} if cell.core == "lstm" else {})},
            "language": True,
            "last_action_and_reward": True,
        },
        "algorithm": {"unroll_length": 5},
        "loss": LOSSES[cell.loss],
        "value_scaling": {"kind": cell.scaling},
        "auxiliary": {"kind": cell.auxiliary, **({"cell_size": 1} if cell.auxiliary == "pixel_control" else {})},
        "optimizer": {"schedule": "constant"},
        "replay": replay,
        "actor": {"environments": BATCH_SIZE},
        "learner": {"batch_size": BATCH_SIZE, "queue_batches": 8},
    }


class _Batches:
    """Turns new unrolls into batches, together with replayed ones."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._layout = run_layout(settings, environment_spec(settings.env))
        self._num_online = settings.num_online_unrolls
        self._ring = BatchAssembler(self._layout, settings, torch.device("cpu")) if settings.replay.kind != "shared" else None
        self._played: list[Unroll] = []

    def of(self, unroll: Unroll) -> BatchBuffer:
        self._played.append(unroll)
        if self._ring is not None:
            tasks = unroll["task_id"]
            online = [QueuedUnroll(unroll, row, (0, 1), (1, 0), int(tasks[row]), 5) for row in range(self._num_online)]
            return self._ring.assemble(online, with_replayed=self._ring.wait_for_replayed())
        # A replay service sends whole episodes from the beginning, without the states of the actor.
        buffer = BatchBuffer.from_unrolls(self._layout, unroll)
        num_replayed = NUM_REPLAYED if len(self._played) > 4 else 0
        if num_replayed:
            earlier = self._played[len(self._played) - 5]
            for name, array in buffer.arrays.items():
                if name in earlier:
                    array[self._num_online :] = earlier[name][:num_replayed]
            if "initial_core_state" in buffer.arrays:
                buffer.arrays["initial_core_state"][self._num_online :] = 0.0
        buffer.set_counts(self._num_online, num_replayed)
        return buffer


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_parts_train_together(cell: Cell, tmp_path: Path) -> None:
    """20 updates have finite losses and change the weights. In a population, the second ten continue from another member's checkpoint."""
    whole = RunSettings.model_validate({**experiment_of(cell), "run_dir": str(tmp_path)})
    learner = MemberLearner(whole, 0)
    batches = _Batches(learner.settings)
    policy = LocalPolicy(learner.trainer.agent, seed=5, precision=torch.float32)
    group = make_group(learner.settings, BATCH_SIZE)
    before = {name: tensor.clone() for name, tensor in learner.trainer.weights().items()}
    share_replayed = []
    for number in range(NUM_UPDATES):
        if number == NUM_UPDATES // 2 and cell.strategy == "pbt":
            _copy_another(learner, whole)
        buffer = batches.of(play_unroll(learner.settings, [group], policy, version=number))
        share_replayed.append(buffer.num_replayed)
        losses = learner.update(buffer)
        assert all(math.isfinite(value) for value in losses.values()), losses
    group.environments.close()
    after = learner.trainer.weights()
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    assert any(not torch.equal(before[name], tensor) for name, tensor in after.items())
    assert learner.statistics.learner_updates == NUM_UPDATES
    assert (max(share_replayed) > 0) is (cell.replay != "none")
    assert bool(learner.trainer.parts["value_statistics"].tensors()) is (cell.scaling == "popart")
    assert bool(learner.trainer.parts["auxiliary"].tensors()) is (cell.auxiliary == "pixel_control")
    assert learner.is_done is (cell.strategy == "pbt")


def _copy_another(learner: MemberLearner, whole: RunSettings) -> None:
    donor = MemberLearner(whole, 1)
    assert donor.write()
    own = tuple(OwnSetting(key=key, value=value) for key, value in donor.settings.own_values.items())
    assert learner.carry_out(Order(number=1, copied=Copied(donor=1, learner_updates=0, env_frames=0, applied=0), settings=own))
    theirs: dict[str, Any] = donor.trainer.weights()
    assert all(np.array_equal(tensor.numpy(), theirs[name].numpy()) for name, tensor in learner.trainer.weights().items())
