"""The DeepMind Lab suite on a stand-in that rejects what the Lab rejects (tests/envs/stand_in)."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from importlib import import_module, resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from herd.components.suites import make_environments, suite_named, what_is_missing
from herd.components.suites.api import BatchedEnvironment, BrokenEnvironmentError
from herd.components.suites.dmlab import DMLabSettings
from herd.components.suites.dmlab.cache import LevelCache
from herd.components.suites.dmlab.levels import ACTIONS
from herd.components.suites.reading import hash_instruction
from herd.config.loading import load_settings

STAND_IN = Path(__file__).parent / "stand_in"
LANGUAGE = "language_execute_random_task"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in, importable in this process and in its child processes."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    monkeypatch.delitem(sys.modules, "deepmind_lab", raising=False)
    monkeypatch.delitem(sys.modules, "herd.components.suites.dmlab.level", raising=False)
    return import_module("deepmind_lab")


def make_level(settings: DMLabSettings) -> Any:
    module = import_module("herd.components.suites.dmlab.level")  # this module imports the Lab
    return module.LabLevel(settings, settings.tasks[0])


def make(settings: DMLabSettings, num_environments: int = 1, first_slot: int = 0, seed: int = 3) -> BatchedEnvironment:
    return make_environments(settings, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_environments)


def rows_of_table() -> list[dict[str, str]]:
    with (resources.files("herd.components.suites.dmlab") / "scores.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_dmlab30_expands_to_its_levels_in_table_order() -> None:
    rows = rows_of_table()
    assert DMLabSettings().tasks == tuple(row["train_level"] for row in rows)
    held_out = DMLabSettings(hold_out=True).tasks
    assert held_out == tuple(row["test_level"] for row in rows)
    assert len(held_out) == 30
    assert [level for level in held_out if level not in DMLabSettings().tasks] == [
        "rooms_collect_good_objects_test",
        "rooms_exploit_deferred_effects_test",
    ]
    scores = suite_named("dmlab").reference_scores()
    assert len(scores) == 32
    for variant in ("train", "test"):
        reference = scores[f"rooms_collect_good_objects_{variant}"]
        assert (reference.task, reference.human, reference.random) == (f"rooms_collect_good_objects_{variant}", 10.0, 0.073)


def test_an_evaluation_plays_the_test_variants(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("env: {suite: dmlab, tasks: [lt_chasm, rooms_collect_good_objects_train, rooms_watermaze]}\n")
    assert load_settings([file], [], {}).env.tasks == ("lt_chasm", "rooms_collect_good_objects_train", "rooms_watermaze")
    held_out = load_settings([file], ["--env.hold_out", "true"], {}).env
    assert held_out.tasks == ("lt_chasm", "rooms_collect_good_objects_test", "rooms_watermaze")
    assert DMLabSettings.model_validate_json(held_out.model_dump_json()) == held_out


def test_action_sets_match_the_papers() -> None:
    """Both tables written out again: the words of the paper's rows, with the axis and sign of each."""
    axes = {"Forward": (3, 1), "Backward": (3, -1), "Strafe Left": (2, -1), "Strafe Right": (2, 1), "Fire": (4, 1)}
    looks = {
        "impala": {"Look Left": (0, -20), "Look Right": (0, 20)},
        "popart": {
            "Small Left": (0, -10),
            "Small Right": (0, 10),
            "Large Left": (0, -60),
            "Large Right": (0, 60),
            "Look Down": (1, 10),
            "Look Up": (1, -10),
        },
    }
    for name, look in looks.items():
        horizontal = [word for word in look if not word.endswith((" Down", " Up"))]
        order = ["Forward", "Backward", "Strafe Left", "Strafe Right", *look, *(f"Forward + {word}" for word in horizontal), "Fire"]
        expected = np.zeros((len(order), 7), int)
        for row, words in enumerate(order):
            for word in words.split(" + "):
                axis, value = (axes | look)[word]
                expected[row, axis] = value
        assert_array_equal(np.array(ACTIONS[name]), expected)


def test_folders_and_processes_of_a_machine_change_no_game(tmp_path: Path) -> None:
    here = DMLabSettings(dataset_path="/data/brady", level_cache=tmp_path, prepare_games=False).game_settings()
    assert here == DMLabSettings(dataset_path="/mnt/brady").game_settings()
    for differing in ({"dataset_path": "dummy"}, {"level_seeds": 5}, {"hold_out": True}, {"renderer": "hardware"}):
        assert DMLabSettings.model_validate({"dataset_path": "/data/brady", **differing}).game_settings() != here


def test_a_missing_dataset_is_reported_in_one_line(lab: ModuleType, tmp_path: Path) -> None:
    tasks = ("rooms_watermaze", "psychlab_continuous_recognition")
    missing = what_is_missing(DMLabSettings(tasks=tasks))
    assert missing is not None
    assert missing.startswith("env.dataset_path: psychlab_continuous_recognition needs a folder of photographs")
    assert "no such folder" in str(what_is_missing(DMLabSettings(tasks=tasks, dataset_path=str(tmp_path / "none"))))
    for enough in (str(tmp_path), "dummy"):
        assert what_is_missing(DMLabSettings(tasks=tasks, dataset_path=enough)) is None
    assert what_is_missing(DMLabSettings(tasks=tasks[:1])) is None


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {}),
        ({"hold_out": True}, {"allowHoldOutLevels": "true", "mixerSeed": "1611489005"}),
        ({"dataset_path": "dummy"}, {"datasetPath": "dummy"}),
        ({"frame_height": 10, "frame_width": 20}, {"height": "10", "width": "20"}),
    ],
)
def test_the_lab_gets_its_settings_as_strings(lab: ModuleType, settings: dict[str, Any], config: dict[str, str]) -> None:
    level = make_level(DMLabSettings(tasks=("rooms_watermaze",), **settings))
    assert level._lab.config == {"height": "72", "width": "96", "logLevel": "WARN"} | config
    assert level._lab.level == "contributed/dmlab30/rooms_watermaze"


def test_every_action_sends_its_row_of_the_table(lab: ModuleType) -> None:
    for action_set, table in ACTIONS.items():
        level = make_level(DMLabSettings(tasks=("lt_chasm",), action_set=action_set))
        for action, row in enumerate(table):
            level.reset(5)
            played = level.step(action)
            assert played.reward == 4 * row[4]
            assert tuple(played.observed["frame"][0, 0]) == (5, 4, 4 * row[0] % 256)


def test_level_seeds_limits_the_number_of_different_games(lab: ModuleType) -> None:
    level = make_level(DMLabSettings(tasks=("lt_chasm",), level_seeds=3))
    assert {int(level.reset(seed)["frame"][0, 0, 0]) for seed in range(1000, 1020)} == {0, 1, 2}
    assert make_level(DMLabSettings(tasks=("lt_chasm",)))._level_seeds is None


def test_compiled_maps_are_cached(lab: ModuleType, tmp_path: Path) -> None:
    settings = DMLabSettings(tasks=("explore_goal_locations_small",), level_cache=tmp_path / "cache")
    first, second = make_level(settings), make_level(settings)
    compiled = []
    for level, seed in [(first, 1), (first, 2), (second, 1), (second, 2), (second, 3), (first, 3)]:
        level.reset(seed)
        compiled.append(level._lab.compiled)
    assert compiled == [True, True, False, False, True, False]
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".pk3"}
    assert sorted(path.read_text() for path in files) == [f"map of lt_procedural/aas {seed}" for seed in (1, 2, 3)]


def test_a_cache_that_cannot_be_written_is_logged_once(lab: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = LevelCache(tmp_path / "file" / "cache")
    (tmp_path / "map").write_text("map")
    for _ in range(2):
        cache.write("key", str(tmp_path / "map"))
        assert not cache.fetch("key", str(tmp_path / "copy"))
    assert len(caplog.records) == 1
    assert "env.level_cache" in caplog.text


def test_an_incomplete_map_is_not_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LevelCache(tmp_path / "cache")
    (tmp_path / "map").write_text("map")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        cache.write("key", str(tmp_path / "map"))
    assert not cache.fetch("key", str(tmp_path / "copy"))
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def expected_games(seeds: Iterator[int], language: bool, actions: NDArray[np.int32]) -> list[dict[str, Any]]:
    """The stand-in's games of one slot, row by row, derived from its description: 4 frames a step, 22 a game, the 9 actions of IMPALA."""
    row: dict[str, Any] = {"start": True}
    rows = []
    frames = looked = game = 0
    over = True
    total, steps = 0.0, 0
    for action in [None, *actions]:
        if over:
            game = next(seeds)
            frames = looked = 0
            total, steps = 0.0, 0
            row = {"valid": action is None, "reward": 0.0, "end": False, "start": True}
            over = False
            seen = (game, frames, looked)
        else:
            left = min(4, 22 - frames)
            table = {4: -20, 5: 20, 6: -20, 7: 20}
            reward = float(left) if action == 8 else 0.0
            frames += left
            looked += left * table.get(int(action or 0), 0)
            total, steps = total + reward, steps + 1
            over = frames == 22
            row = {"valid": True, "reward": reward, "end": over, "start": False}
            if not over:  # the Lab shows nothing after the end, so the last observation is kept
                seen = (game, frames, looked)
        row["pixel"] = tuple(number % 256 for number in seen)
        row["words"] = hash_instruction(f"fetch object {game}" if language else "")
        row["finished"] = (total, steps) if row["end"] else None
        rows.append(row)
    return rows


def seeds_of_slot(slot: int, prepare_games: bool) -> Iterator[int]:
    """One process draws all seeds; or two processes, started one after the other, draw in turn, the second one first."""
    streams = [np.random.default_rng((11, slot, start)) for start in ((2, 1) if prepare_games else (1,))]
    return (int(stream.integers(2**31)) for stream in itertools.cycle(streams))


@pytest.mark.processes
@pytest.mark.parametrize("prepare_games", [True, False])
def test_batch_rows_match_levels_stepped_directly(lab: ModuleType, prepare_games: bool) -> None:
    settings = DMLabSettings(tasks=(LANGUAGE, "rooms_watermaze"), prepare_games=prepare_games)
    environments = make(settings, num_environments=3, first_slot=5, seed=11)
    try:
        assert environments.task_ids.tolist() == [1, 0, 1]
        actions = np.random.default_rng(0).integers(9, size=(3, 40), dtype=np.int32)
        expected = [expected_games(seeds_of_slot(5 + e, prepare_games), bool(environments.task_ids[e] == 0), actions[e]) for e in range(3)]
        observation = environments.reset()
        for t in range(40):
            for e in range(3):
                row = expected[e][t]
                assert observation.stack[e, :, 3, 7].tolist() == list(row["pixel"])
                assert observation.instructions is not None
                assert observation.instructions[e].tolist() == row["words"]
                assert observation.game_reset[e] == row["start"]
            before = observation.stack.copy()
            transition = environments.step(actions[:, t])
            assert_array_equal(observation.stack, before)  # the arrays of the previous call are unchanged
            nexts = [expected[e][t + 1] for e in range(3)]
            assert transition.rewards.tolist() == [row["reward"] for row in nexts]
            assert transition.valid.tolist() == [row["valid"] for row in nexts]
            assert transition.terminated.tolist() == [row["end"] for row in nexts]
            assert not transition.truncated.any()
            finished = [(game.environment, game.task_id, (game.episode_return, game.agent_steps)) for game in transition.finished]
            assert finished == [(e, environments.task_ids[e], row["finished"]) for e, row in enumerate(nexts) if row["end"]]
            observation = transition.observation
        assert sum(row["end"] for row in expected[0]) >= 5
    finally:
        environments.close()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("level", "reason"),
    [("levels/nope", "RuntimeError: Failed to init environment - .*Level not found.*levels/nope"), ("levels/crash", "ended with code 11")],
)
def test_a_level_that_fails_to_start_is_reported_in_one_line(lab: ModuleType, level: str, reason: str) -> None:
    environments = make(DMLabSettings(tasks=(level,)), first_slot=4)
    try:
        with pytest.raises(BrokenEnvironmentError, match=f"{level}, environment 4: its process failed: {reason}") as raised:
            environments.reset()
        assert "\n" not in str(raised.value)
    finally:
        environments.close()
