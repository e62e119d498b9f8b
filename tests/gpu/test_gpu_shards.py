"""Shards on a GPU: NCCL in a group of one, and two processes that share one device over gloo."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from herd.config.run import RunSettings
from tests.system.whole_runs import ROOT, environment
from tests.training.test_shard_steps import RUNS, SMALL, free_ports, results_of_shard_0, run_shards, write_batches

pytestmark = [pytest.mark.processes, pytest.mark.gpu, pytest.mark.timeout(300)]

SHARED_RUNS = ("sum", "popart", "convolutions, adamw")


def test_two_shards_on_one_gpu_give_the_update_of_one_on_the_cpu(tmp_path: Path) -> None:
    """NCCL refuses two processes on one device, so they use gloo."""
    folders = {}
    for name in SHARED_RUNS:
        folders[name] = tmp_path / name
        folders[name].mkdir()
        write_batches(folders[name], RunSettings.model_validate({**SMALL, **RUNS[name]}))
    run_shards(list(folders.values()), 1)
    run_shards(list(folders.values()), 2, device="cuda")
    for folder in folders.values():
        expected, told = results_of_shard_0(folder, 1)
        after, told_by_shards = results_of_shard_0(folder, 2)
        for name, tensor in expected.items():
            torch.testing.assert_close(after[name], tensor, rtol=1e-3, atol=1e-4, msg=partial("{}: {}".format, name))
        for mine, theirs in zip(told, told_by_shards, strict=True):
            assert theirs == pytest.approx(mine, rel=1e-3, abs=1e-4)


def test_gradients_summed_by_nccl_are_those_of_one_learner() -> None:
    """A group of one process that believes to be the first of two: sums over the group are its own, and losses count twice."""
    (port,) = free_ports(1)
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.nccl_of_one", str(port)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("agrees") == 2
