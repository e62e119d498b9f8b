from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import herd
from herd.api.training import resolve_settings
from herd.config.loading import dump_settings
from herd.config.run import RunSettings

POINTS = [
    {"env_frames": 100, "wall_seconds": 1.0, "policy_entropy": 0.5, "tasks": {"ale.v5": {"episode_return_mean_100": None}}},
    {"env_frames": 200, "wall_seconds": 2.0, "tasks": {"ale.v5": {"episode_return_mean_100": -3}}},
    # The run resumed from the checkpoint at 150 frames.
    {"env_frames": 180, "wall_seconds": 1.9, "policy_entropy": 0.25, "tasks": {"ale.v5": {"episode_return_mean_100": 4.5}}},
]


def make_run(directory: Path, points: list[dict[str, object]]) -> Path:
    (directory / "checkpoints" / "000000000042").mkdir(parents=True)
    (directory / "checkpoints" / "000000000042" / "manifest.json").write_text("{}")
    (directory / "checkpoints" / "000000000007").mkdir()
    (directory / "checkpoints" / "000000000050.writing").mkdir()
    (directory / "config.yaml").write_text(dump_settings(RunSettings(name="mine", seed=8)))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    return directory


def test_a_run_gives_its_curve_settings_report_and_checkpoints(tmp_path: Path) -> None:
    run = herd.load_run(make_run(tmp_path / "run", POINTS))
    assert (run.settings.name, run.settings.seed) == ("mine", 8)
    assert run.metrics == [POINTS[0], POINTS[2]]
    np.testing.assert_array_equal(run.array("env_frames"), [100.0, 180.0])
    np.testing.assert_array_equal(run.array("tasks.ale.v5.episode_return_mean_100"), [np.nan, 4.5])
    np.testing.assert_array_equal(run.array("policy_entropy"), [0.5, 0.25])
    with pytest.raises(
        herd.RunError, match=r"no point has policy_entrop; the last point has env_frames, .*tasks\.ale\.v5\.episode_return_mean_100"
    ):
        run.array("policy_entrop")
    assert [path.name for path in run.checkpoints] == ["000000000007", "000000000042"]
    with pytest.raises(herd.RunError, match=r"contains no report\.json"):
        _ = run.report
    (run.directory / "report.json").write_text('{"env_frames": 180}')
    assert run.report == {"env_frames": 180}
    assert [agent.directory for agent in run.agents] == [run.directory]


def test_a_run_without_a_point_has_an_empty_curve(tmp_path: Path) -> None:
    run = herd.load_run(make_run(tmp_path / "run", []))
    assert run.metrics == []
    assert run.array("env_frames").shape == (0,)
    (run.directory / "metrics.jsonl").write_text('{"broken\n' + json.dumps(POINTS[0]) + "\n")
    with pytest.raises(herd.RunError, match="line 1, is not a point of a curve"):
        _ = run.metrics


def test_a_run_is_found_by_name_directory_or_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_run(tmp_path / "runs" / "pong", POINTS)
    monkeypatch.chdir(tmp_path)
    run = herd.load_run("pong")
    assert run.directory == Path("runs/pong")
    assert herd.load_run(run) is run
    assert herd.load_run(str(directory)).directory == directory
    assert herd.load_run("runs/pong/checkpoints/000000000042").directory == directory
    for place, reason in (("nowhere", "no such run"), ("runs", "not a run"), ("runs/pong/checkpoints/000000000007", "not a run")):
        with pytest.raises(herd.RunError, match=f"^{place}: {reason}"):
            herd.load_run(place)


def test_call_arguments_override_environment_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERD_LEARNER__BATCH_SIZE", "40")
    monkeypatch.setenv("HERD_SEED", "3")
    settings = resolve_settings("catch", {"seed": 4, "actor.environments": 8, "stop": {"env_frames": 2e4}, "optimizer": {"kind": "adamw"}})
    assert (settings.learner.batch_size, settings.seed, settings.actor.environments) == (40, 4, 8)
    assert (settings.stop.env_frames, settings.optimizer.kind, settings.env.tasks) == (20_000, "adamw", ("catch",))
    # Values that are already resolved are not read from the environment again.
    again = resolve_settings(settings.model_copy(update={"seed": 9}), {"placement": {"host": "127.0.0.1"}})
    assert again == settings.model_copy(update={"seed": 9})
    mapping = resolve_settings({"env": {"suite": "catch"}, "network.torso": "mlp", "learner.batch_size": 16}, {})
    assert (mapping.env.suite, mapping.learner.batch_size, mapping.seed) == ("catch", 40, 3)
    (tmp_path / "more.yaml").write_text("learner: {queue_batches: 5}\n")
    assert resolve_settings(["catch", tmp_path / "more.yaml"], {}).learner.queue_batches == 5


@pytest.mark.parametrize(
    ("settings", "overrides", "line"),
    [
        ("catch", {"learner": {"batch_sise": 3}}, r"learner\.batch_sise: no such setting \(arguments\); did you mean learner\.batch_size"),
        ("catch", {"learner.batch_size": "many"}, r"learner\.batch_size: should be integer > 0, not 'many' \(arguments\)"),
        ("catch", {"seed": True}, r"seed: should be integer"),
        ({"learner": 3}, {}, r"learner: is a section of settings and takes no value \(settings\)"),
        (None, {}, "needs a run file"),
        (None, {"resume": True, "run_dir": "nowhere"}, "nowhere: no such run to resume"),
        ("cacth", {}, "did you mean catch"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(settings, overrides, line) -> None:
    with pytest.raises(herd.SettingsError, match=line) as refusal:
        resolve_settings(settings, overrides)
    assert "\n" not in str(refusal.value)
