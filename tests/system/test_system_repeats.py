"""The seed decides what a run with one actor learns, bit for bit."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from herd.run.checkpoints import newest_checkpoint
from tests.system.whole_runs import read_points, train


def learned(run_dir: Path, *words: str) -> tuple[str, str, list[Any]]:
    """Digests of weights and optimizer at the end, and what the curve says that does not depend on time."""
    train(run_dir, "--actor.count", "1", "--stop.env_frames", "12000", *words)
    checkpoint = newest_checkpoint(run_dir / "checkpoints")
    assert checkpoint is not None
    digests = [sha256((checkpoint / f"{part}.safetensors").read_bytes()).hexdigest() for part in ("model", "optimizer")]
    return digests[0], digests[1], [read_points(run_dir)[-1][key] for key in ("env_frames", "learner_updates")]


def test_two_runs_with_one_seed_are_equal(tmp_path: Path) -> None:
    first = learned(tmp_path / "a")
    assert learned(tmp_path / "b") == first
    assert learned(tmp_path / "c", "--seed", "2")[0] != first[0]
