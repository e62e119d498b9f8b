import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from herd.files import FileError
from herd.view.plots.history import read_run
from herd.view.snapshot import snapshot_of


def point(frames: float, seconds: float, score: float | None = 0.0, **more: object) -> str:
    record = {"env_frames": frames, "wall_seconds": seconds, "frames_per_second": 10.0, "episode_return_mean_100": score, **more}
    return json.dumps(record)


def run_directory(tmp_path: Path, lines: list[str], **config: Any) -> Path:
    directory = tmp_path / "pong-s3"
    directory.mkdir()
    (directory / "config.yaml").write_text(yaml.safe_dump({"name": "pong-s3", "seed": 3, "env": {"tasks": ["pong"]}, **config}))
    (directory / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return directory


def test_read_run_returns_points_and_experiment(tmp_path: Path) -> None:
    run = read_run(run_directory(tmp_path, [point(40, 2, None), point(80, 4, -20.5)]))
    assert run.experiment == "pong"
    assert run.env_frames.tolist() == [40, 80]
    assert run.wall_seconds.tolist() == [2, 4]
    np.testing.assert_array_equal(run.episode_returns["pong"], [np.nan, -20.5])


def test_several_tasks_are_read_by_name(tmp_path: Path) -> None:
    tasks = {"pong": {"episode_return_mean_100": -3.0}, "qbert": {"episode_return_mean_100": None}}
    run = read_run(run_directory(tmp_path, [point(40, 2, 99.0, tasks=tasks)], env={"tasks": ["pong", "qbert"]}))
    assert run.episode_returns["pong"].tolist() == [-3.0]
    assert np.isnan(run.episode_returns["qbert"]).all()


@pytest.mark.parametrize("odd", [[], "none", {"pong": 3, "qbert": []}, {"pong": {"episode_return_mean_100": "high"}, "qbert": None}])
def test_sections_of_another_type_count_as_missing(tmp_path: Path, odd: object) -> None:
    record = point(40, 2, 1.0, tasks=odd, health=odd)
    run = read_run(run_directory(tmp_path, [record], env={"tasks": ["pong", "qbert"]}))
    assert all(np.isnan(returns).all() for returns in run.episode_returns.values())
    assert snapshot_of(json.loads(record), ()).env_frames == 40


def test_repeats_are_known_by_the_settings_on_which_learning_depends(tmp_path: Path) -> None:
    def settings(folder: str, **config: Any) -> dict[str, str]:
        (tmp_path / folder).mkdir()
        return read_run(run_directory(tmp_path / folder, [point(40, 2)], **config)).settings

    sections = {
        "optimizer": {"learning_rate": 1e-3},
        "value_scaling": {"kind": "none"},
        "learner": {"batch_size": 4, "log_interval_seconds": 5.0},
    }
    sections["bandit"] = {"ucb_scale": 1.0, "history_interval_seconds": 60.0}
    first = settings("a", **sections)
    assert {"optimizer.learning_rate": "0.001", "value_scaling.kind": "none", "learner.batch_size": "4"}.items() <= first.items()
    assert first == settings("b", **sections, seed=8, name="other", actor={"count": 9})
    elsewhere = {"learner": {"batch_size": 4, "log_interval_seconds": 9.0}, "bandit": {"ucb_scale": 1.0, "history_interval_seconds": 9.0}}
    assert first == settings("c", **{**sections, **elsewhere})
    others: dict[str, dict[str, object]] = {
        "optimizer": {"learning_rate": 2e-3},
        "value_scaling": {"kind": "popart"},
        "learner": {"batch_size": 8},
        "bandit": {"ucb_scale": 6.0},
    }
    for section, other in others.items():
        assert first != settings(section, **{**sections, section: other})
    assert first == settings("more agents", **sections, agents=2)
    shared = {**sections, "replay": {"kind": "shared"}}
    assert settings("one of them", **shared) != settings("two that share", **shared, agents=2)


def test_unreadable_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    empty = run_directory(tmp_path, [])
    (tmp_path / "bare").mkdir()
    for directory, message in (
        (tmp_path / "absent", "no such run directory"),
        (empty, "contains no points yet"),
        (tmp_path / "bare", "cannot read .*metrics.jsonl"),
    ):
        with pytest.raises(FileError, match=message) as caught:
            read_run(directory)
        assert "\n" not in str(caught.value)
