"""The seed decides what a run with one actor learns, bit for bit."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from herd.config.run import RunSettings
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


@pytest.mark.parametrize(
    ("section", "cause"),
    [
        ({}, r"actor\.count 2: actors race"),
        ({"actor": {"count": 1, "inference": "remote"}}, r"actor\.inference remote"),
        ({"actor": {"count": 1}, "learner": {"shards": 2}}, r"learner\.shards 2"),
        ({"actor": {"count": 1}, "loss": {"kind": "dice"}}, r"loss\.kind dice: the bandit"),
        ({"actor": {"count": 1}, "learner": {"queue_batches": 4}, "replay": {"kind": "shared", "fraction": 0.5}}, r"replay\.kind shared"),
    ],
)
def test_what_cannot_repeat_is_said(section: dict[str, Any], cause: str) -> None:
    settings = RunSettings.model_validate({"actor": {"count": 2}, **section})
    assert not settings.can_repeat
    with pytest.raises(ValueError, match=cause):
        RunSettings.model_validate({**settings.model_dump(), "deterministic": True})
