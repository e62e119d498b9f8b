"""A learner that goes on from its checkpoint does what it would have done without stopping."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from herd.bench.synthetic import synthetic_unrolls
from herd.checkpoints.store import CheckpointError
from herd.config.contract import contract_digest
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout
from services.learner import snapshot
from services.learner.ledger import LEARNER_RESTART, Ledger, LedgerSnapshot
from services.learner.replay import UnrollReplay
from services.learner.update import Update
from tests.learner.small_unrolls import LAYOUT, small_arrays

SHALLOW = {
    "env": {"suite": "atari", "tasks": ("breakout",), "frame_height": 44, "frame_width": 44},
    "network": {"torso": "shallow", "core": "lstm", "core_size": 8, "last_action_and_reward": True},
}
MLP = {"env": {"suite": "catch", "tasks": ("catch",), "frame_height": 6, "frame_width": 5}, "network": {"torso": "mlp"}}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.set_rng_state(random_state)


def _settings(run: dict[str, Any]) -> RunSettings:
    return RunSettings.model_validate(
        {
            **run,
            "algorithm": {"unroll_length": 3},
            "optimizer": {"momentum": 0.9},
            "learner": {"batch_size": 4, "micro_batch_size": 2},
            "actor": {"environments": 2},
        }
    )


def _update(settings: RunSettings) -> Update:
    return Update(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32)


def _batches(settings: RunSettings, num_batches: int) -> list[dict[str, torch.Tensor]]:
    layout = run_layout(settings, environment_spec(settings.env))
    return [
        {name: torch.from_numpy(array) for name, array in synthetic_unrolls(layout, 4, seed=seed).items()} for seed in range(num_batches)
    ]


def _save(run_dir: Path, update: Update, settings: RunSettings, **changes: Any) -> Path:
    fields = {
        "contract": contract_digest(settings, environment_spec(settings.env)),
        "learner_updates": 3,
        "lineage": 1,
        "ledger": Ledger().snapshot().as_json(),
        "statistics": {},
        "replay": None,
        "keep": 2,
    }
    return snapshot.save(run_dir, update, **{**fields, **changes})


@pytest.mark.parametrize("run", [SHALLOW, MLP], ids=["shallow", "mlp"])
def test_resuming_gives_the_parameters_of_the_uninterrupted_run_bit_for_bit(tmp_path: Path, run: dict[str, Any]) -> None:
    settings = _settings(run)
    batches = _batches(settings, 6)
    straight = _update(settings)
    for batch in batches:
        straight(batch, 1e-3)

    first = _update(settings)
    for batch in batches[:3]:
        first(batch, 1e-3)
    _save(tmp_path, first, settings)
    expected_draw = torch.rand(4)
    for batch in batches[3:5]:
        first(batch, 0.1)  # what came after the checkpoint is forgotten

    second = _update(_settings({**run, "seed": 99}))
    checkpoint = snapshot.load_newest(tmp_path)
    assert checkpoint is not None
    snapshot.restore(checkpoint, second, contract=contract_digest(settings, environment_spec(settings.env)), replay=None)
    assert torch.equal(torch.rand(4), expected_draw)
    for batch in batches[3:]:
        second(batch, 1e-3)
    assert second.agent.state_dict().keys() == straight.agent.state_dict().keys()
    for name, parameter in straight.agent.state_dict().items():
        assert torch.equal(second.agent.state_dict()[name], parameter), name
    for name, tensor in straight.optimizer_tensors().items():
        assert torch.equal(second.optimizer_tensors()[name], tensor), name
        assert second.optimizer_tensors()[name].stride() == tensor.stride(), name


def test_loaded_state_does_not_share_memory_with_the_checkpoint(tmp_path: Path) -> None:
    settings = _settings(MLP)
    update = _update(settings)
    update(_batches(settings, 1)[0], 1e-2)
    _save(tmp_path, update, settings)
    checkpoint = snapshot.load_newest(tmp_path)
    assert checkpoint is not None
    before = {name: tensor.clone() for name, tensor in checkpoint.tensors["optimizer"].items()}
    snapshot.restore(checkpoint, update, contract=checkpoint.state["contract"], replay=None)
    update(_batches(settings, 2)[1], 1e-2)
    assert all(torch.equal(before[name], tensor) for name, tensor in checkpoint.tensors["optimizer"].items())


def test_counters_accounts_and_random_states_survive(tmp_path: Path) -> None:
    settings = _settings(MLP)
    ledger = Ledger()
    ledger.receive((3, 2**62 + 1), sequence=5, generated=80, num_frames=80)
    ledger.consume(30)
    replay = UnrollReplay(LAYOUT, 4, seed=2)
    replay.insert(small_arrays(4), 4)
    path = _save(tmp_path, _update(settings), settings, lineage=7, ledger=ledger.snapshot().as_json(), replay=replay)
    expected = replay.random.integers(0, 2**60, 3)
    json.loads((path / "state.json").read_text())

    checkpoint = snapshot.load_newest(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.learner_updates, checkpoint.state["learner_updates"], checkpoint.state["lineage"]) == (3, 3, 7)
    restored = Ledger(LedgerSnapshot.from_json(checkpoint.state["ledger"]))
    assert restored.snapshot().report() == {"generated": 80, "consumed": 30, "dropped": {LEARNER_RESTART: 50}, "in_flight": 0}
    assert restored.snapshot().accounts == {(3, 2**62 + 1): (5, 80)}
    other = UnrollReplay(LAYOUT, 4, seed=9)
    snapshot.restore(checkpoint, _update(settings), contract=checkpoint.state["contract"], replay=other)
    np.testing.assert_array_equal(other.random.integers(0, 2**60, 3), expected)


def test_a_checkpoint_of_another_contract_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    settings = _settings(MLP)
    _save(tmp_path, _update(settings), settings)
    checkpoint = snapshot.load_newest(tmp_path)
    assert checkpoint is not None
    other = _settings({**MLP, "env": {**MLP["env"], "frame_stack": 2}})
    update = _update(other)
    before = {name: tensor.clone() for name, tensor in update.agent.state_dict().items()}
    with pytest.raises(CheckpointError, match="another network or environment"):
        snapshot.restore(checkpoint, update, contract=contract_digest(other, environment_spec(other.env)), replay=None)
    assert all(torch.equal(before[name], tensor) for name, tensor in update.agent.state_dict().items())


@pytest.mark.parametrize("tensors", [{"foreign.weight/second_moment": torch.ones(3)}, {"value_head.weight/second_moment": torch.ones(3)}])
def test_optimizer_state_of_another_network_is_refused(tensors: dict[str, torch.Tensor]) -> None:
    with pytest.raises(CheckpointError, match="fits no parameter"):
        _update(_settings(MLP)).load_optimizer_tensors(tensors)


def test_a_run_without_checkpoints_starts_anew(tmp_path: Path) -> None:
    assert snapshot.load_newest(tmp_path) is None
