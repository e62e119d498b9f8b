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
from safetensors.torch import load_file, save_file

from herd.config.settings import RunSettings
from tests.learning.small_runs import RUN, trainer_of, unrolls_of
from tests.patience import patient
from tests.system.whole_runs import ROOT, environment, free_ports

pytestmark = pytest.mark.processes

BATCH_SIZE = 8
NUM_UPDATES = 3
SECONDS = patient(140.0)
SMALL: dict[str, Any] = {**RUN, "learner": {"batch_size": BATCH_SIZE, "micro_batch_size": 2}}


def write_batches(folder: Path, settings: RunSettings) -> None:
    """Unrolls with games that end, rows that only start one, and rewards that differ."""
    for number in range(NUM_UPDATES):
        arrays = unrolls_of(settings, number)
        # All of the last shard's part of three, so that one shard has nothing to learn from.
        arrays["row_valid"][-2:] = False
        save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, folder / f"batch-{number}.safetensors")
    (folder / "settings.json").write_text(settings.model_dump_json())


def run_shards(folder: Path, size: int, sharding: str = "ddp") -> tuple[dict[str, torch.Tensor], list[list[float]]]:
    """What shard 0 leaves after the updates."""
    (port,) = free_ports(1)
    places: list[dict[str, str]] = [{}]
    if size > 1:
        shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        places = [{**shared, "RANK": str(rank)} for rank in range(size)]
    clean = {name: value for name, value in environment().items() if name not in {"RANK", "WORLD_SIZE"}}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.learning.shard_steps", str(folder), sharding]
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
        {"env": {**RUN["env"], "tasks": ["catch", "catch_instructed"]}, "value_scaling": {"kind": "popart", "rate": 0.1}},
        {
            "env": {"suite": "atari", "tasks": ["breakout"]},
            "network": {"torso": "shallow", "core": "none"},
            "optimizer": {"kind": "adamw", "epsilon": 1e-3},
        },
    ],
    ids=["sum", "mean, clipped", "popart", "convolutions, adamw"],
)
def test_one_two_and_three_shards_take_the_same_step(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = RunSettings.model_validate({**SMALL, **changes})
    write_batches(tmp_path, settings)
    expected, told = run_shards(tmp_path, 1)
    for name, fresh in trainer_of(settings).weights().items():
        assert not torch.equal(expected[name], fresh), f"{name} was not trained"
    for size, sharding in ((2, "ddp"), (3, "ddp"), (2, "fully_shard"), (3, "fully_shard")):
        after, told_by_shards = run_shards(tmp_path, size, sharding)
        assert after.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(after[name], tensor, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
        for mine, theirs in zip(told, told_by_shards, strict=True):
            assert theirs == pytest.approx(mine, rel=1e-4, abs=1e-6)
