from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from herd_bandit.keeper import History
from herd_bandit.task_bandit import TaskBandits, new_bandits

from herd.config.services import BanditSettings
from tests.failing_disks import no_space_beyond

SETTINGS = BanditSettings()


def make(directory: Path, max_bytes: int = 1 << 20) -> History:
    return History(directory, interval_seconds=60.0, max_bytes=max_bytes, clock=lambda: 1234.56)


def play(bandits: TaskBandits, task_id: int = 0, *, inverse: float = 5.0) -> None:
    bandits[0, task_id].count(inverse, 3.0, 400, learn=True)


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]


def test_a_record_holds_counts_and_values_of_each_tile(tmp_path: Path) -> None:
    bandits = new_bandits(SETTINGS, ("pong",), seed=1)
    history = make(tmp_path / "bandit")
    bandits[0, 0].hand_out(SETTINGS, np.random.default_rng(0))
    play(bandits)
    history.record(bandits.values())
    [record] = records(tmp_path / "bandit")
    assert (record["agent"], record["task"], record["episodes"], record["env_frames"], record["seconds"]) == (0, "pong", 1, 400, 1234.6)
    assert len(record["edges"]) == 40
    assert (record["edges"][0], record["edges"][-1]) == (0.0, 50.0)
    tile = int(np.log1p(5.0) / 0.1)
    assert record["edges"][tile] <= 5.0 < record["edges"][tile + 1]
    assert (record["reports"][tile], record["return_sums"][tile]) == (1, 3.0)
    assert record["values"] == pytest.approx(bandits[0, 0].evaluation.tolist(), rel=1e-4)
    assert sum(record["handed_out"]) == 1
    assert sum(record["votes"]) == 49
    assert len(json.dumps(record)) < 1600


def test_only_ensembles_that_counted_a_game_are_recorded(tmp_path: Path) -> None:
    bandits = new_bandits(SETTINGS, ("pong", "qbert"), seed=1)
    history = make(tmp_path)
    history.record(bandits.values())
    assert not (tmp_path / "history.jsonl").exists()
    play(bandits, 0)
    history.record(bandits.values())
    play(bandits, 1)
    history.record(bandits.values())
    history.record(bandits.values())
    assert [record["task"] for record in records(tmp_path)] == ["pong", "qbert"]


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    bandits = new_bandits(SETTINGS, ("pong",), seed=1)
    play(bandits)
    make(tmp_path).record(bandits.values())
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"agent": 0, "task"')
    play(bandits)
    make(tmp_path).record(bandits.values())
    assert [record["episodes"] for record in records(tmp_path)] == [1, 2]


def test_a_full_history_is_thinned_and_recorded_less_often(tmp_path: Path) -> None:
    bandits = new_bandits(SETTINGS, ("pong", "qbert"), seed=1)
    history = make(tmp_path, max_bytes=30_000)
    with (tmp_path / "history.jsonl").open("w") as file:
        file.write("damaged by the disk\n")
    for _ in range(100):
        play(bandits, 0)
        play(bandits, 1)
        history.record(bandits.values())
    assert (tmp_path / "history.jsonl").stat().st_size <= 30_000 + 4_000
    assert history.interval_seconds > 60.0
    kept = [record["episodes"] for record in records(tmp_path) if record["task"] == "qbert"]
    assert kept[0] == 1
    assert kept[-1] >= 98
    assert kept == sorted(kept)
    assert [record["episodes"] for record in records(tmp_path) if record["task"] == "pong"] == kept


def test_a_full_disk_leaves_only_complete_lines(tmp_path: Path) -> None:
    bandits = new_bandits(SETTINGS, ("pong",), seed=1)
    history = make(tmp_path)
    play(bandits)
    history.record(bandits.values())
    size = (tmp_path / "history.jsonl").stat().st_size
    play(bandits)
    with no_space_beyond(size + 100), pytest.raises(OSError, match="File too large"):
        history.record(bandits.values())
    play(bandits)
    history.record(bandits.values())
    assert [record["episodes"] for record in records(tmp_path)] == [1, 3]
