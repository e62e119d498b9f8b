"""Shards in real processes over gloo: the same global batch gives the same update, however many share it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from herd_learner.update import Update
from safetensors.torch import load_file, save_file

from herd.bench.synthetic import synthetic_unrolls
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout
from tests.patience import patient
from tests.system.whole_runs import ROOT, environment, free_ports

pytestmark = pytest.mark.processes

BATCH_SIZE = 8
NUM_UPDATES = 3
SECONDS = patient(140.0)
RUN: dict[str, Any] = {
    "env": {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ["catch"], "frame_height": 6, "frame_width": 5},
    "network": {"torso": "mlp", "core": "lstm", "core_size": 8, "last_action_and_reward": True},
    "algorithm": {"unroll_length": 4},
    "learner": {"batch_size": BATCH_SIZE, "micro_batch_size": 2},
    "actor": {"environments": 2},
}


def write_batches(folder: Path, run: dict[str, Any]) -> None:
    """Unrolls with games that end, rows that only start one, and rewards that differ."""
    settings = RunSettings.model_validate(run)
    layout = run_layout(settings, environment_spec(settings.env))
    for number in range(NUM_UPDATES):
        batch = {name: torch.from_numpy(array).clone() for name, array in synthetic_unrolls(layout, BATCH_SIZE, seed=number).items()}
        generator = torch.Generator().manual_seed(number)
        batch["terminated"] = torch.rand(batch["terminated"].shape, generator=generator) < 0.2
        batch["row_valid"] = torch.rand(batch["row_valid"].shape, generator=generator) < 0.8
        batch["rewards"] = torch.randn(batch["rewards"].shape, generator=generator)
        # All of the last shard's part of three, so that one shard has nothing to learn from.
        batch["row_valid"][-2:] = False
        save_file({name: tensor.contiguous() for name, tensor in batch.items()}, folder / f"batch-{number}.safetensors")
    (folder / "settings.json").write_text(json.dumps(run))


def initial_weights(run: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Those that every shard begins with."""
    settings = RunSettings.model_validate(run)
    return Update(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32).weights()


def run_shards(folder: Path, size: int, sharding: str = "ddp") -> tuple[dict[str, torch.Tensor], list[list[float]]]:
    """What shard 0 leaves after the updates."""
    (port,) = free_ports(1)
    places: list[dict[str, str]] = [{}]
    if size > 1:
        shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        places = [{**shared, "RANK": str(rank)} for rank in range(size)]
    clean = {name: value for name, value in environment().items() if name not in {"RANK", "WORLD_SIZE"}}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.learner.shard_steps", str(folder), sharding]
    with ExitStack() as stack:
        files = [stack.enter_context((folder / f"errors-{rank}.txt").open("w+")) for rank in range(size)]
        processes = [
            stack.enter_context(subprocess.Popen(command, cwd=ROOT, env={**clean, **place, "OMP_NUM_THREADS": "1"}, stderr=file))
            for place, file in zip(places, files, strict=True)
        ]
        try:
            deadline = time.monotonic() + SECONDS
            for process in processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            for process in processes:
                process.send_signal(signal.SIGABRT)  # faulthandler says where it was
        finally:
            codes = [process.wait(10.0) for process in processes]
        assert codes == [0] * size, [(code, (folder / f"errors-{rank}.txt").read_text()) for rank, code in enumerate(codes)]
    return load_file(folder / f"after-{size}.safetensors"), json.loads((folder / f"statistics-{size}.json").read_text())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": {"unroll_length": 4}, "loss": {"reduction": "mean"}, "optimizer": {"momentum": 0.5, "max_gradient_norm": 0.5}},
        {
            "env": {"suite": "atari", "tasks": ["breakout"]},
            "network": {"torso": "shallow", "core": "none"},
            "optimizer": {"kind": "adamw"},
        },
    ],
    ids=["sum", "mean, clipped", "convolutions, adamw"],
)
def test_one_two_and_three_shards_take_the_same_step(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_batches(tmp_path, {**RUN, **changes})
    expected, told = run_shards(tmp_path, 1)
    for name, fresh in initial_weights({**RUN, **changes}).items():
        assert not torch.equal(expected[name], fresh), f"{name} was not trained"
    for size, sharding in ((2, "ddp"), (3, "ddp"), (2, "fully_shard"), (3, "fully_shard")):
        after, told_by_shards = run_shards(tmp_path, size, sharding)
        assert after.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(after[name], tensor, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
        for mine, theirs in zip(told, told_by_shards, strict=True):
            assert theirs == pytest.approx(mine, rel=1e-4, abs=1e-6)
