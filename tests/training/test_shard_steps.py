"""Shards in real processes over gloo: the same global batch gives the same update, however many shards divide it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from herd.config.run import RunSettings
from tests.patience import patient
from tests.system.whole_runs import ROOT, environment, free_ports
from tests.training.small_runs import RUN, trainer_of, unrolls_of

pytestmark = pytest.mark.processes

BATCH_SIZE = 8
NUM_UPDATES = 3
SECONDS = patient(140.0)
SMALL: dict[str, Any] = {**RUN, "learner": {"batch_size": BATCH_SIZE, "micro_batch_size": 2, "health_interval_updates": 2}}
RUNS: dict[str, dict[str, Any]] = {
    "sum": {},
    "mean, clipped": {
        "algorithm": {"unroll_length": 4},
        "loss": {"reduction": "mean"},
        "optimizer": {"momentum": 0.5, "max_gradient_norm": 0.5},
    },
    "popart": {"env": {**RUN["env"], "tasks": ["catch", "catch_instructed"]}, "value_scaling": {"kind": "popart", "rate": 0.1}},
    "pixel control, burn-in": {
        "env": {**RUN["env"], "frame_height": 8, "frame_width": 8, "tasks": ["catch", "catch_instructed"]},
        "algorithm": {"unroll_length": 4, "burn_in": 2},
        "value_scaling": {"kind": "popart", "rate": 0.1},
        "auxiliary": {"kind": "pixel_control", "cell_size": 1},
    },
    "convolutions, adamw": {
        "env": {"suite": "atari", "tasks": ["breakout"]},
        "network": {"torso": "shallow", "core": "none", "input_centering": "mean"},
        "loss": {"reduction": "mean"},
        "optimizer": {"kind": "adamw", "epsilon": 1e-3},
    },
}


def write_batches(folder: Path, settings: RunSettings) -> None:
    """Write unrolls with games that end, rows that only start one, and rewards that differ."""
    for number in range(NUM_UPDATES):
        arrays = unrolls_of(settings, number)
        # This covers the whole part of the last of three shards, so that one shard has nothing to learn from.
        arrays["row_valid"][-2:] = False
        save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, folder / f"batch-{number}.safetensors")
    (folder / "settings.json").write_text(settings.model_dump_json())


def run_shards(folders: list[Path], size: int, device: str = "cpu") -> None:
    """Run the shards of all folders in the same processes: importing torch and connecting take longer than all updates."""
    (port,) = free_ports(1)
    places: list[dict[str, str]] = [{"DEVICE": device}]
    if size > 1:
        shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        places = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "DEVICE": device} for rank in range(size)]
    clean = {name: value for name, value in environment().items() if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.training.shard_steps", *map(str, folders)]
    errors = [folders[0] / f"errors-{size}-{rank}.txt" for rank in range(size)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command, cwd=ROOT, env={**clean, **place, "OMP_NUM_THREADS": "1"}, stderr=stack.enter_context(path.open("w"))
                )
            )
            for place, path in zip(places, errors, strict=True)
        ]
        try:
            deadline = time.monotonic() + SECONDS
            for process in processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            for process in processes:
                process.send_signal(signal.SIGABRT)  # faulthandler prints where the process was
        finally:
            codes = [process.wait(SECONDS) for process in processes]
    assert codes == [0] * size, [(code, path.read_text()) for code, path in zip(codes, errors, strict=True)]


def results_of_shard_0(folder: Path, size: int) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """The tensors and statistics that shard 0 wrote after the updates."""
    return load_file(folder / f"after-{size}.safetensors"), json.loads((folder / f"statistics-{size}.json").read_text())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run one, two and three shards on each of RUNS; returns the folder of each run by its name."""
    made = {}
    for name, changes in RUNS.items():
        made[name] = tmp_path_factory.mktemp("shards")
        write_batches(made[name], RunSettings.model_validate({**SMALL, **changes}))
    for size in (1, 2, 3):
        run_shards(list(made.values()), size)
    return made


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("run", RUNS)
def test_several_shards_give_the_update_of_one(folders: dict[str, Path], run: str, size: int) -> None:
    expected, told = results_of_shard_0(folders[run], 1)
    for name, fresh in trainer_of(RunSettings.model_validate({**SMALL, **RUNS[run]})).weights().items():
        assert not torch.equal(expected[name], fresh), f"{name} was not trained"
    after, told_by_shards = results_of_shard_0(folders[run], size)  # three shards have 3, 3 and 2 unrolls
    assert after.keys() == expected.keys()
    for name, tensor in expected.items():
        # Statistics are float64 and gathered, so only rounding in the targets remains.
        tolerance = 1e-6 if name.startswith("value_statistics/") else 1e-4
        torch.testing.assert_close(after[name], tensor, rtol=tolerance, atol=1e-6, msg=partial("{}: {}".format, name))
    for mine, theirs in zip(told, told_by_shards, strict=True):
        assert theirs == pytest.approx(mine, rel=1e-4, abs=1e-6)
