"""A learner that resumes from its checkpoint continues as if it had not stopped."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from herd_learner.batches.local import UnrollReplay
from herd_learner.group.collectives import ShardGroup
from herd_learner.group.rendezvous import Place
from herd_learner.intake.ledger import Ledger
from herd_learner.record import checkpoints
from herd_learner.record.statistics import RunStatistics

from herd.components.optimizers import Rates
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import Origin
from herd.protocols.unrolls.metrics import LEARNER_RESTART
from herd.run.checkpoints import CheckpointError
from herd.run.paths import checkpoint_folders
from herd.run.tensors import load_checkpoint
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer
from tests.learner.small_unrolls import LAYOUT, small_arrays
from tests.training.small_runs import batch_of, trainer_of

pytestmark = pytest.mark.usefixtures("one_thread")

SHALLOW = {
    "env": {"suite": "atari", "tasks": ("breakout",), "frame_height": 44, "frame_width": 44},
    "network": {"torso": "shallow", "core": {"kind": "lstm", "size": 8}, "last_action_and_reward": True},
}
MLP: dict[str, Any] = {
    "env": {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ("catch",), "frame_height": 6, "frame_width": 5},
    "network": {"torso": "mlp"},
}
POPART: dict[str, Any] = {
    **MLP,
    "env": {**MLP["env"], "tasks": ("catch", "catch_instructed")},
    "value_scaling": {"kind": "popart", "rate": 0.1},
}


PIXEL_CONTROL = {
    **POPART,
    "env": {**POPART["env"], "frame_height": 8, "frame_width": 8},
    "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 8}},
    "auxiliary": {"kind": "pixel_control", "cell_size": 1},
}


def _settings(run: dict[str, Any]) -> RunSettings:
    return RunSettings.model_validate(
        {
            "optimizer": {"momentum": 0.9},
            **run,
            "algorithm": {"unroll_length": 3},
            "learner": {"batch_size": 4, "micro_batch_size": 2},
            "actor": {"environments": 2},
        }
    )


def _origin(settings: RunSettings) -> Origin:
    return Origin.of(settings, environment_spec(settings.env))


def _batches(settings: RunSettings, num_batches: int) -> list[BatchBuffer]:
    return [batch_of(settings, seed) for seed in range(num_batches)]


def _save(run_dir: Path, trainer: Trainer, settings: RunSettings, **changes: Any) -> Path:
    fields = {
        "origin": _origin(settings),
        "learner_updates": 3,
        "lineage": 1,
        "ledger": Ledger().snapshot().as_json(),
        "statistics": RunStatistics(environment_spec(settings.env)).as_json(1.5),
        "replay_random": [],
        "keep": 2,
    }
    return checkpoints.save(run_dir, checkpoints.tensors_of(trainer), **{**fields, **changes})


RUNS = {
    "shallow": SHALLOW,
    "mlp": MLP,
    "popart": POPART,
    "pixel_control": PIXEL_CONTROL,
    "adam": {**MLP, "optimizer": {"kind": "adam"}},
    "adamw": {**MLP, "loss": {"kind": "dice"}, "optimizer": {"kind": "adamw", "epsilon": 1e-6}},
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path, run: dict[str, Any]) -> None:
    settings = _settings(run)
    batches = _batches(settings, 6)
    straight = trainer_of(settings)
    for batch in batches:
        straight(batch, Rates(1e-3))

    first = trainer_of(settings)
    for batch in batches[:3]:
        first(batch, Rates(1e-3))
    _save(tmp_path, first, settings)
    expected_draw = torch.rand(4)
    for batch in batches[3:5]:
        first(batch, Rates(0.1))  # updates after the checkpoint are lost

    second = trainer_of(_settings({**run, "seed": 99}))
    checkpoint = checkpoints.load_newest(tmp_path, _origin(settings))
    assert checkpoint is not None
    checkpoints.restore(checkpoint, second, replay=None)
    assert torch.equal(torch.rand(4), expected_draw)
    for batch in batches[3:]:
        second(batch, Rates(1e-3))
    assert second.agent.state_dict().keys() == straight.agent.state_dict().keys()
    for name, parameter in straight.agent.state_dict().items():
        assert torch.equal(second.agent.state_dict()[name], parameter), name
    assert {name: tensor.tolist() for name, tensor in second.parts["value_statistics"].tensors().items()} == {
        name: tensor.tolist() for name, tensor in straight.parts["value_statistics"].tensors().items()
    }
    for name, tensor in straight.parts["auxiliary"].tensors().items():
        assert torch.equal(second.parts["auxiliary"].tensors()[name], tensor), name
    for name, tensor in straight.parts["optimizer"].tensors().items():
        assert torch.equal(second.parts["optimizer"].tensors()[name], tensor), name
        assert second.parts["optimizer"].tensors()[name].stride() == tensor.stride(), name


def test_a_checkpoint_before_the_first_update_can_be_broadcast(tmp_path: Path) -> None:
    settings = _settings(MLP)
    _save(tmp_path, trainer_of(settings), settings, learner_updates=0)
    checkpoint = checkpoints.load_newest(tmp_path, _origin(settings))
    spread = checkpoints.broadcast(checkpoint, ShardGroup(Place(0, 1)))
    assert spread is not None
    assert "optimizer" not in spread.tensors  # it is empty
    checkpoints.restore(spread, trainer_of(settings), replay=None)


def test_loaded_state_does_not_share_memory_with_the_checkpoint(tmp_path: Path) -> None:
    settings = _settings(MLP)
    trainer = trainer_of(settings)
    trainer(_batches(settings, 1)[0], Rates(1e-2))
    _save(tmp_path, trainer, settings)
    checkpoint = checkpoints.load_newest(tmp_path, _origin(settings))
    assert checkpoint is not None
    before = {name: tensor.clone() for name, tensor in checkpoint.tensors["optimizer"].items()}
    checkpoints.restore(checkpoint, trainer, replay=None)
    trainer(_batches(settings, 2)[1], Rates(1e-2))
    assert all(torch.equal(before[name], tensor) for name, tensor in checkpoint.tensors["optimizer"].items())


def test_counters_accounts_and_random_states_are_restored(tmp_path: Path) -> None:
    settings = _settings(MLP)
    ledger = Ledger()
    ledger.receive((3, 2**62 + 1), sequence=5, generated=80, frames={0: 80})
    ledger.consume({0: 30})
    replay = UnrollReplay(LAYOUT.fields, 4, seed=2)
    replay.insert(small_arrays(4), [(1, 0)] * 4)
    randoms = [replay.random.bit_generator.state, UnrollReplay(LAYOUT.fields, 4, seed=3).random.bit_generator.state]
    path = _save(tmp_path, trainer_of(settings), settings, lineage=7, ledger=ledger.snapshot().as_json(), replay_random=randoms)
    expected = replay.random.integers(0, 2**60, 3)
    json.loads((path / "state.json").read_text())

    checkpoint = checkpoints.load_newest(tmp_path, _origin(settings))
    assert checkpoint is not None
    assert (checkpoint.learner_updates, checkpoint.state["learner_updates"], checkpoint.state["lineage"]) == (3, 3, 7)
    _, restored, least_lineage = checkpoints.restore_counters(checkpoint, environment_spec(settings.env))
    assert least_lineage == 8
    assert restored.snapshot().report() == {"generated": 80, "consumed": 30, "dropped": {LEARNER_RESTART: 50}, "in_flight": 0}
    assert restored.snapshot().task(0).as_json() == restored.snapshot().report()
    assert restored.snapshot().accounts == {(3, 2**62 + 1): (5, 80)}
    other = UnrollReplay(LAYOUT.fields, 4, seed=9)
    checkpoints.restore(checkpoint, trainer_of(settings), replay=other)
    np.testing.assert_array_equal(other.random.integers(0, 2**60, 3), expected)
    # Each rank restores its own state; a rank without saved state starts from its seed.
    other, begun = UnrollReplay(LAYOUT.fields, 4, seed=9), UnrollReplay(LAYOUT.fields, 4, seed=5)
    checkpoints.restore(checkpoint, trainer_of(settings), replay=other, rank=1)
    checkpoints.restore(checkpoint, trainer_of(settings), replay=begun, rank=2)
    for restored_random, seed in ((other.random, 3), (begun.random, 5)):
        fresh = UnrollReplay(LAYOUT.fields, 4, seed=seed).random
        np.testing.assert_array_equal(restored_random.integers(0, 2**60, 3), fresh.integers(0, 2**60, 3))


@pytest.mark.parametrize(("made_with", "here"), [(PIXEL_CONTROL, {"kind": "none"}), ({"kind": "none"}, PIXEL_CONTROL)], ids=["off", "on"])
def test_a_checkpoint_with_another_auxiliary_loss_is_refused(tmp_path: Path, made_with: dict[str, Any], here: dict[str, Any]) -> None:
    made, now = (_settings(PIXEL_CONTROL if run is PIXEL_CONTROL else {**PIXEL_CONTROL, "auxiliary": run}) for run in (made_with, here))
    trainer = trainer_of(made)
    trainer(_batches(made, 1)[0], Rates(1e-3))
    path = _save(tmp_path, trainer, made)
    checkpoint = checkpoints.load_newest(tmp_path, _origin(now))
    assert checkpoint is not None
    with pytest.raises(CheckpointError) as refused:
        checkpoints.restore(checkpoint, trainer_of(now), replay=None)
    assert str(refused.value) == f"{path}: the auxiliary head does not fit: auxiliary.kind has changed"


def test_a_foreign_checkpoint_is_skipped_and_not_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings, foreign_settings = _settings(MLP), _settings(SHALLOW)
    own = _save(tmp_path, trainer_of(settings), settings, learner_updates=3)
    foreign = _save(tmp_path, trainer_of(foreign_settings), foreign_settings, learner_updates=9)
    with caplog.at_level(logging.WARNING):
        checkpoint = checkpoints.load_newest(tmp_path, _origin(settings))
    assert checkpoint is not None
    assert checkpoint.path == own
    (record,) = caplog.records
    assert f"{foreign}: made by another network" in record.getMessage()
    assert record.getMessage().endswith(f"continuing from {own}")
    for updates in (4, 5):
        _save(tmp_path, trainer_of(settings), settings, learner_updates=updates, keep=1)
    assert sorted(path.name for path in own.parent.iterdir()) == [f"{5:012d}", f"{9:012d}"]


@pytest.mark.parametrize("damage", [{"ledger": None}, {"ledger": {"accounts": [[1]]}}, {"statistics": {}}, {"lineage": "x"}])
def test_a_state_that_is_not_a_learners_is_refused_in_one_line(tmp_path: Path, damage: dict[str, Any]) -> None:
    settings = _settings(MLP)
    path = _save(tmp_path, trainer_of(settings), settings)
    checkpoint = load_checkpoint(path)
    checkpoint.state.update(damage)
    with pytest.raises(CheckpointError, match="does not have the contents of a learner's checkpoint") as refused:
        checkpoints.restore_counters(checkpoint, environment_spec(settings.env))
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("lost", "reason"), [("model", "another network"), ("random", "random"), ("a tensor", "another network")])
def test_a_checkpoint_with_missing_contents_is_refused(tmp_path: Path, lost: str, reason: str) -> None:
    settings = _settings(MLP)
    checkpoint = load_checkpoint(_save(tmp_path, trainer_of(settings), settings))
    if lost == "a tensor":
        checkpoint.tensors["model"].popitem()
    else:
        del checkpoint.tensors[lost]
    with pytest.raises(CheckpointError, match=reason) as refused:
        checkpoints.restore(checkpoint, trainer_of(settings), replay=None)
    assert str(refused.value).startswith(f"{checkpoint.path}: ")


@pytest.mark.parametrize("tensors", [{"foreign.weight/second_moment": torch.ones(3)}, {"value_head.weight/second_moment": torch.ones(3)}])
def test_optimizer_state_of_another_network_is_refused(tensors: dict[str, torch.Tensor]) -> None:
    with pytest.raises(CheckpointError, match="does not fit any parameter"):
        trainer_of(_settings(MLP)).parts["optimizer"].load(tensors)


@pytest.mark.parametrize("poison", [math.inf, math.nan])
def test_what_is_not_finite_is_never_written(tmp_path: Path, poison: float) -> None:
    settings = _settings(MLP)
    trainer = trainer_of(settings)
    kept = _save(tmp_path, trainer, settings)
    with torch.no_grad():
        trainer.agent.value_head.weight[0, 0] = poison
    with pytest.raises(CheckpointError, match=r"not written: value_head\.weight of model contains numbers that are not finite"):
        _save(tmp_path, trainer, settings, learner_updates=9)
    assert checkpoint_folders(tmp_path) == [kept]
