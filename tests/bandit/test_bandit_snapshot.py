from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from herd_bandit import snapshot
from herd_bandit.exchange import ClientGames, Window, new_window
from herd_bandit.snapshot import ForeignSnapshotError, Restored, SnapshotError
from herd_bandit.task_bandit import TaskBandits, new_bandits

from herd.config.services import BanditSettings
from herd.files import sealed
from herd.protocols.bandit.tiling import tiling_of
from tests.bandit.contents import contents
from tests.failing_disks import no_space_beyond

SETTINGS = BanditSettings()
TASKS = ("breakout", "pong")


def played(games: int, *, settings: BanditSettings = SETTINGS, tasks: tuple[str, ...] = TASKS) -> TaskBandits:
    bandits = new_bandits(settings, tasks, seed=1)
    generator = np.random.default_rng(0)
    for _ in range(games):
        for bandit in bandits.values():
            bandit.count(bandit.hand_out(settings, generator), float(generator.normal()), 400, learn=True)
    return bandits


def save(directory: Path, bandits: TaskBandits, window: Window | None = None) -> None:
    snapshot.save(directory, run="run", tiling=tiling_of(SETTINGS), bandits=bandits.values(), window=window or new_window())


def load(directory: Path, settings: BanditSettings = SETTINGS) -> tuple[Restored | None, list[str]]:
    return snapshot.load(directory, tiling=tiling_of(settings), num_bandits=settings.bandits)


def episodes(restored: Restored | None) -> int:
    assert restored is not None
    return sum(bandit.tally.episodes for bandit in restored.bandits.values())


def test_a_snapshot_restores_bandits_and_clients(tmp_path: Path) -> None:
    bandits, window = played(20), new_window()
    window.answered(str(2**62), 3, ClientGames({40: 7}, ((40, 8, 1.0),)))
    window.answered("another", 1, ClientGames())
    save(tmp_path / "bandit", bandits, window)
    restored, damaged = load(tmp_path / "bandit")
    assert damaged == []
    assert restored is not None
    assert set(restored.bandits) == {(0, "breakout"), (0, "pong")}
    for bandit in bandits.values():
        again = restored.bandits[bandit.agent, bandit.task]
        assert contents(again.ensemble) == contents(bandit.ensemble)
        for tally, name in ((again.tally, name) for name in ("votes", "handed_out", "reports", "return_sums")):
            np.testing.assert_array_equal(getattr(tally, name), getattr(bandit.tally, name), strict=True)
        assert again.tally.env_frames == bandit.tally.env_frames == 8000
    assert restored.clients == ((str(2**62), 3, {40: 7}), ("another", 1, {}))


def test_a_snapshot_holds_the_best_region(tmp_path: Path) -> None:
    bandits = new_bandits(SETTINGS, ("pong",), seed=1)
    save(tmp_path, bandits)
    assert json.loads((tmp_path / "state.json").read_text())["state"]["bandits"][0]["best_inverse_temperatures"] is None
    bandits[0, 0].count(5.0, -3.0, 4, learn=True)
    save(tmp_path, bandits)
    low, high = json.loads((tmp_path / "state.json").read_text())["state"]["bandits"][0]["best_inverse_temperatures"]
    assert low <= 5.0 < high
    assert np.log1p(high) - np.log1p(low) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda text: text.replace('"counts":[', '"counts":[9', 1),
        lambda text: text.replace('"env_frames":', '"env_frame":'),
        lambda _: "[1, 2]",
        lambda _: '{"state": {}}',
        lambda _: "\0" * 4096,
    ],
    ids=["half", "empty", "a number changed", "a name changed", "a list", "no digest", "zeros"],
)
def test_a_damaged_state_is_replaced_by_the_previous_one(tmp_path: Path, damage) -> None:
    save(tmp_path, played(3))
    save(tmp_path, played(5))
    state = tmp_path / "state.json"
    state.write_text(damage(state.read_text()))
    restored, damaged = load(tmp_path)
    assert episodes(restored) == 6
    assert len(damaged) == 1
    assert str(state) in damaged[0]
    assert "\n" not in damaged[0]


def test_a_state_with_valid_digest_but_wrong_form_is_damaged(tmp_path: Path) -> None:
    save(tmp_path, played(3))
    state = json.loads((tmp_path / "state.json").read_text())["state"]
    state["bandits"][0]["votes"] = [1, 2, 3]
    (tmp_path / "state.json").write_text(sealed(json.dumps(state)))
    restored, [line] = load(tmp_path)
    assert restored is None
    assert "tallies do not fit 39 tiles" in line
    state["clients"] = [{"name": "1", "request_id": 1, "slots": [1, 2], "episodes": [5]}]
    state["bandits"] = []
    (tmp_path / "state.json").write_text(sealed(json.dumps(state)))
    restored, [line] = load(tmp_path)
    assert restored is None
    assert "is damaged" in line
    state["version"] = 2
    (tmp_path / "state.json").write_text(sealed(json.dumps(state)))
    restored, [line] = load(tmp_path)
    assert restored is None
    assert "version" in line


def test_a_crash_between_the_renames_leaves_the_previous_state(tmp_path: Path) -> None:
    save(tmp_path, played(3))
    (tmp_path / "state.json").rename(tmp_path / "state.previous.json")
    (tmp_path / "state.json.tmp").write_text("half a st")
    restored, damaged = load(tmp_path)
    assert (episodes(restored), damaged) == (6, [])
    save(tmp_path, played(4))
    assert episodes(load(tmp_path)[0]) == 8


def test_a_full_disk_keeps_the_previous_state(tmp_path: Path) -> None:
    save(tmp_path, played(3))
    with no_space_beyond(4096), pytest.raises(SnapshotError, match="the previous state is kept"):
        save(tmp_path, played(5))
    restored, damaged = load(tmp_path)
    assert (episodes(restored), damaged) == (6, [])


@pytest.mark.parametrize(
    "other",
    [BanditSettings(tile_accuracy=0.2), BanditSettings(max_inverse_temperature=20.0), BanditSettings(bandits=5)],
    ids=["accuracy", "range", "bandits"],
)
def test_a_state_of_other_settings_is_refused(tmp_path: Path, other: BanditSettings) -> None:
    save(tmp_path, played(3))
    with pytest.raises(ForeignSnapshotError, match=r"made with other bandit\.bandits, tile_accuracy"):
        load(tmp_path, other)
