"""A run directory records the settings of every start."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.run import settings as run_settings
from herd.run.processes import is_supervised
from herd.run.settings import changed_settings, keep_settings


def settings_of(directory: Path, *words: str) -> RunSettings:
    return load_settings([], ["--run_dir", str(directory), *words], {})


def starts(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "starts.jsonl").read_text().splitlines()]


def test_the_settings_of_every_start_are_recorded(tmp_path: Path) -> None:
    first = settings_of(tmp_path)
    assert changed_settings(tmp_path, first) == []
    keep_settings(tmp_path, first)
    second = settings_of(tmp_path, "--resume", "--learner.batch_size", "48", "--stop.wall_seconds", "60", "--env.tasks", "pong")
    said = [str(change) for change in changed_settings(tmp_path, second)]
    assert said == ['env.tasks ["breakout"] -> ["pong"]', "learner.batch_size 32 -> 48", "stop.wall_seconds null -> 60.0"]
    keep_settings(tmp_path, second)
    assert changed_settings(tmp_path, second) == []
    one, two = starts(tmp_path)
    assert one["changed"] == {}
    assert two["changed"] == {"env.tasks": [["breakout"], ["pong"]], "learner.batch_size": [32, 48], "stop.wall_seconds": [None, 60.0]}
    assert (one["settings"]["learner"]["batch_size"], two["settings"]["learner"]["batch_size"]) == (32, 48)  # type: ignore[index]
    assert one["started"] <= two["started"]  # type: ignore[operator]
    assert load_settings([tmp_path / "config.yaml"], [], {}) == second.model_copy(update={"resume": False})


def test_a_change_of_kind_is_listed_as_one_change(tmp_path: Path) -> None:
    keep_settings(tmp_path, settings_of(tmp_path, "--optimizer.epsilon", "0.5"))
    said = [str(change) for change in changed_settings(tmp_path, settings_of(tmp_path, "--optimizer.kind", "adamw"))]
    assert "optimizer.kind rmsprop -> adamw" in said
    assert not any("decay" in line for line in said)  # only RMSProp has this setting


def test_the_history_of_starts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is restarted again and again adds a line each time."""
    keep_settings(tmp_path, settings_of(tmp_path, "--seed", "0"))
    monkeypatch.setattr(run_settings, "MAX_STARTS_BYTES", 10 * (tmp_path / "starts.jsonl").stat().st_size)
    for seed in range(1, 40):
        keep_settings(tmp_path, settings_of(tmp_path, "--seed", str(seed)))
        assert len(starts(tmp_path)) <= 11
    kept = [start["settings"]["seed"] for start in starts(tmp_path)]  # type: ignore[index]
    assert kept == [0, *range(41 - len(kept), 40)]


def test_a_refused_start_takes_its_settings_back(tmp_path: Path) -> None:
    keep_settings(tmp_path, settings_of(tmp_path))()
    assert not (tmp_path / "config.yaml").exists()
    assert starts(tmp_path) == []
    keep_settings(tmp_path, settings_of(tmp_path, "--seed", "3"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    keep_settings(tmp_path, settings_of(tmp_path, "--seed", "4"))()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_config_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: [")
    keep_settings(tmp_path, settings_of(tmp_path))
    assert len(starts(tmp_path)) == 1


def test_is_supervised_tells_whether_the_lock_is_held(tmp_path: Path) -> None:
    assert not is_supervised(tmp_path)
    with (tmp_path / ".lock").open("w") as lock:
        assert not is_supervised(tmp_path)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_supervised(tmp_path)
    assert not is_supervised(tmp_path)
