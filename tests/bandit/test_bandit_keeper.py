"""When the state and its history are written to disk, and what happens when the disk fails."""

from __future__ import annotations

import json
import math
from pathlib import Path

from herd_bandit.exchange import ClientGames, new_window
from herd_bandit.keeper import Keeper
from herd_bandit.meters import Meters
from herd_bandit.task_bandit import TaskBandits, new_bandits

from herd.components.suites.atari import AtariSettings
from herd.config.run import RunSettings
from herd.config.services import BanditSettings
from herd.telemetry import Telemetry
from herd.telemetry.logs import get_logger


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
    assert after.bandits[0, 1].ensemble == before.bandits[0, 1].ensemble
    assert after.bandits[0, 2].ensemble == before.bandits[0, 0].ensemble
    assert after.bandits[0, 0].tally.episodes == 0
    assert (after.window.judge("5", 3), after.window.reply("5")) == ("repeated", ClientGames({0: 9}))
    assert after.keeper.age_seconds == 0.0
