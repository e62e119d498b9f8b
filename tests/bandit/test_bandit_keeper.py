"""When the state and its history are written to disk, and what happens when the disk fails."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from herd_bandit.exchange import ClientGames, new_window
from herd_bandit.keeper import History, Keeper
from herd_bandit.meters import Meters
from herd_bandit.task_bandit import TaskBandits, new_bandits

from herd.components.suites.atari import AtariSettings
from herd.config.run import RunSettings
from herd.config.services import BanditSettings
from herd.telemetry import Telemetry
from herd.telemetry.logs import get_logger
from tests.bandit.contents import contents
from tests.failing_disks import no_space_beyond


class Process:
    """Everything in a bandit process except its socket."""

    def __init__(self, run_dir: Path, tasks: tuple[str, ...] = ("pong",), **bandit: object) -> None:
        own = BanditSettings(snapshot_interval_seconds=30.0, history_interval_seconds=60.0, **bandit)
        self.settings = RunSettings(name="run", run_dir=run_dir, bandit=own, env=AtariSettings(tasks=tasks, action_set="full"))
        self.now = 1000.0
        self.telemetry = Telemetry("bandit", "run")
        self.bandits: TaskBandits = new_bandits(own, tasks, seed=1)
        self.window = new_window()
        meters = Meters(self.telemetry)
        self.keeper = Keeper(self.settings, bandits=self.bandits, window=self.window, meters=meters, clock=lambda: self.now)

    def play(self, task_id: int = 0) -> None:
        self.bandits[0, task_id].count(5.0, 2.0, 4, learn=True)

    def restore(self) -> int:
        return self.keeper.restore(get_logger())

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.keeper.tick()

    def value(self, line: str) -> float:
        [found] = [one for one in self.telemetry.exposition().decode().splitlines() if one.startswith(line + " ")]
        return float(found.rpartition(" ")[2])

    @property
    def num_records(self) -> int:
        file = self.settings.directory / "bandit" / "history.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def saved(self) -> int | None:
        file = self.settings.directory / "bandit" / "state.json"
        return sum(json.loads(file.read_text())["state"]["bandits"][0]["reports"]) if file.exists() else None


def test_state_and_history_are_written_when_due(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.play()
    process.pass_seconds(29.9)
    assert (process.saved, process.num_records) == (None, 0)
    assert math.isnan(process.keeper.age_seconds)
    process.pass_seconds(0.1)
    assert (process.saved, process.num_records) == (1, 0)
    process.play()
    process.pass_seconds(30.0)
    assert (process.saved, process.num_records) == (2, 1)
    process.play()
    process.pass_seconds(5.0)
    assert (process.saved, process.keeper.age_seconds) == (2, 5.0)
    process.pass_seconds(3600.0)  # after an hour's pause: one snapshot, not sixty
    assert (process.saved, process.num_records) == (3, 2)
    assert process.value("herd_bandit_snapshots_written_total") == 3


def test_failed_writes_are_counted_and_retried(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.play()
    in_the_way = tmp_path / "bandit"
    in_the_way.touch()
    process.pass_seconds(61.0)
    assert process.value('herd_bandit_file_failures_total{file="state.json"}') == 1
    assert process.value('herd_bandit_file_failures_total{file="history.jsonl"}') == 1
    process.pass_seconds(30.0)
    assert process.value('herd_bandit_file_failures_total{file="state.json"}') == 2
    assert process.keeper.save() is False
    in_the_way.unlink()
    process.pass_seconds(30.0)
    assert process.saved == 1
    assert process.keeper.save() is True


def test_a_run_resumed_with_another_task_keeps_its_ensembles(tmp_path: Path) -> None:
    before = Process(tmp_path, ("pong", "qbert"))
    for _ in range(4):
        before.play(1)
    before.window.answered("5", 3, ClientGames({0: 9}))
    before.keeper.save()
    after = Process(tmp_path, ("alien", "qbert", "pong"))
    assert after.restore() == 4
    assert contents(after.bandits[0, 1].ensemble) == contents(before.bandits[0, 1].ensemble)
    assert contents(after.bandits[0, 2].ensemble) == contents(before.bandits[0, 0].ensemble)
    assert after.bandits[0, 0].tally.episodes == 0
    assert (after.window.judge("5", 3), after.window.reply("5")) == ("repeated", ClientGames({0: 9}))
    assert after.keeper.age_seconds == 0.0


# -- the history


def history_in(directory: Path, max_bytes: int = 1 << 20) -> History:
    return History(directory, interval_seconds=60.0, max_bytes=max_bytes, clock=lambda: 1234.56)


def count_game(bandits: TaskBandits, task_id: int = 0, *, inverse: float = 5.0) -> None:
    bandits[0, task_id].count(inverse, 3.0, 400, learn=True)


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]


def test_a_record_holds_counts_and_values_of_each_tile(tmp_path: Path) -> None:
    bandits = new_bandits(BanditSettings(), ("pong",), seed=1)
    history = history_in(tmp_path / "bandit")
    bandits[0, 0].hand_out(BanditSettings(), np.random.default_rng(0))
    count_game(bandits)
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
    bandits = new_bandits(BanditSettings(), ("pong", "qbert"), seed=1)
    history = history_in(tmp_path)
    history.record(bandits.values())
    assert not (tmp_path / "history.jsonl").exists()
    count_game(bandits, 0)
    history.record(bandits.values())
    count_game(bandits, 1)
    history.record(bandits.values())
    history.record(bandits.values())
    assert [record["task"] for record in records(tmp_path)] == ["pong", "qbert"]


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    bandits = new_bandits(BanditSettings(), ("pong",), seed=1)
    count_game(bandits)
    history_in(tmp_path).record(bandits.values())
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"agent": 0, "task"')
    count_game(bandits)
    history_in(tmp_path).record(bandits.values())
    assert [record["episodes"] for record in records(tmp_path)] == [1, 2]


def test_a_full_history_is_thinned_and_recorded_less_often(tmp_path: Path) -> None:
    bandits = new_bandits(BanditSettings(), ("pong", "qbert"), seed=1)
    history = history_in(tmp_path, max_bytes=30_000)
    with (tmp_path / "history.jsonl").open("w") as file:
        file.write("damaged by the disk\n")
    for _ in range(100):
        count_game(bandits, 0)
        count_game(bandits, 1)
        history.record(bandits.values())
    assert (tmp_path / "history.jsonl").stat().st_size <= 30_000 + 4_000
    assert history.interval_seconds > 60.0
    kept = [record["episodes"] for record in records(tmp_path) if record["task"] == "qbert"]
    assert kept[0] == 1
    assert kept[-1] >= 98
    assert kept == sorted(kept)
    assert [record["episodes"] for record in records(tmp_path) if record["task"] == "pong"] == kept


def test_a_full_disk_leaves_only_complete_lines(tmp_path: Path) -> None:
    bandits = new_bandits(BanditSettings(), ("pong",), seed=1)
    history = history_in(tmp_path)
    count_game(bandits)
    history.record(bandits.values())
    size = (tmp_path / "history.jsonl").stat().st_size
    count_game(bandits)
    with no_space_beyond(size + 100), pytest.raises(OSError, match="File too large"):
        history.record(bandits.values())
    count_game(bandits)
    history.record(bandits.values())
    assert [record["episodes"] for record in records(tmp_path)] == [1, 3]
