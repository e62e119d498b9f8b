import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.image
import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure

from herd.files import FileError
from herd.view.plots import panels
from herd.view.plots.curves import collect_curves, plot_runs
from herd.view.plots.panels import PanelSet


def make_run(
    tmp_path: Path,
    directory: str,
    *,
    name: str,
    seed: int,
    score: float,
    tasks: tuple[str, ...] = ("pong",),
    lr: float = 1.0,
    **sections: object,
) -> Path:
    path = tmp_path / directory
    path.mkdir(parents=True)
    config = {"name": name, "seed": seed, "env": {"suite": "atari", "tasks": list(tasks)}, "optimizer": {"learning_rate": lr}, **sections}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    points = [
        {
            "env_frames": 1_000_000 * step,
            "wall_seconds": 100.0 * step,
            "frames_per_second": 10_000.0,
            "episode_return_mean_100": score * step,
            "tasks": {task: {"episode_return_mean_100": score * step + index} for index, task in enumerate(tasks)},
        }
        for step in range(1, 6)
    ]
    write_points(path, points)
    return path


def points_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def write_points(run: Path, points: list[dict[str, Any]]) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))


class Row(NamedTuple):
    """One point of one curve."""

    panel: str
    curve: str
    num_runs: int
    x: float
    mean: float
    low: float
    high: float


def drawn(runs: list[Path], *, panels: PanelSet = "returns", **options: Any) -> list[Row]:
    """The points that a plot of the runs draws."""
    return [
        Row(line.panel.key, line.label, line.curve.num_runs, *numbers)
        for line in collect_curves(runs, panels, **options).lines
        for numbers in zip(line.curve.x, line.curve.mean, line.curve.low, line.curve.high, strict=True)
    ]


def averaged(runs: list[Path]) -> dict[str, float]:
    """The last mean of each curve of pong over two runs."""
    return {row.curve: row.mean for row in drawn(runs) if row.panel == "pong" and row.num_runs == 2}


def final(rows: list[Row], panel: str, curve: str) -> Row:
    return [row for row in rows if row.panel == panel and row.curve == curve][-1]


def test_repeats_are_averaged_and_other_runs_drawn_separately(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"pong-s{seed}", name=f"pong-s{seed}", seed=seed, score=float(seed)) for seed in (1, 2, 3)]
    runs.append(make_run(tmp_path, "faster", name="faster", seed=1, score=4.0))
    rows = drawn(runs)
    assert final(rows, "pong", "pong")[2:] == (3, 5e6, 10.0, 5.0, 15.0)
    assert final(rows, "pong", "pong-s3").mean == 15.0
    faster = final(rows, "pong", "faster")
    assert (faster.num_runs, faster.mean, np.isnan(faster.low)) == (1, 20.0, True)
    assert final(rows, "frames_per_second", "faster").mean == 10_000.0


def test_runs_of_one_name_with_other_settings_are_not_averaged(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"{lr}/{seed}", name="pong", seed=seed, score=lr, lr=lr) for lr in (1.0, 2.0) for seed in (1, 2)]
    assert averaged(runs) == {"pong (optimizer.learning_rate=1.0)": 5.0, "pong (optimizer.learning_rate=2.0)": 10.0}


def test_labels_name_folders_where_common_settings_do_not_tell_groups_apart(tmp_path: Path) -> None:
    kinds = {"none": {"kind": "none"}, "slow": {"kind": "popart", "rate": 1e-4}, "fast": {"kind": "popart", "rate": 1e-3}}
    runs = [
        make_run(tmp_path, f"{folder}/{seed}", name="pong", seed=seed, score=1.0, value_scaling=section)
        for folder, section in kinds.items()
        for seed in (1, 2)
    ]
    assert averaged(runs).keys() == {"pong (none/1, ...)", "pong (slow/1, ...)", "pong (fast/1, ...)"}


def test_ungrouped_runs_are_drawn_individually(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"pong-s{seed}", name="pong", seed=seed, score=float(seed)) for seed in (1, 2)]
    rows = drawn(runs, x="wall_seconds", group="none")
    assert {row.curve for row in rows} == {"pong-s1", "pong-s2"}
    last = final(rows, "pong", "pong-s2")
    assert (last.x, last.mean) == (500.0, 10.0)


@pytest.mark.parametrize(
    ("low", "high", "beyond"),
    [(25.0, 29.0, []), (0.0, 0.9, ["human 30.5 ↑"]), (-0.9, -0.8, ["random 1.7 ↑  human 30.5 ↑"]), (1.5, 9.0, None), (32.0, 900.0, None)],
)
def test_reference_scores_stay_readable_wherever_the_curves_are(low: float, high: float, beyond: list[str] | None) -> None:
    """A score far above the curves is written where no curve is, and the two labels do not overlap."""
    figure = Figure(figsize=(4.0, 3.0))
    axes = figure.add_subplot()
    axes.set_ylim(low, high)
    panels._draw_references(axes, (1.7, 30.5))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    if beyond is not None:
        assert [text.get_text() for text in axes.texts if text.get_window_extent().y0 >= axes.get_window_extent().y1] == beyond


def test_reference_scores_are_drawn_for_a_single_game(tmp_path: Path) -> None:
    run = make_run(tmp_path, "pong", name="pong", seed=1, score=2.0)
    asked: list[tuple[str, str]] = []

    def scores(suite: str, task: str) -> tuple[float, float]:
        asked.append((suite, task))
        return -20.7, 14.6

    plot_runs([run], tmp_path / "plain.png")
    plot_runs([run], tmp_path / "scored.png", reference_scores=scores)
    plot_runs([run], tmp_path / "beyond.png", reference_scores=lambda *_: (2.0, 30_000.0))
    assert asked == [("atari", "pong")]
    pictures = [matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("plain", "scored", "beyond")]
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).any()
    # A human score of 30,000 is labelled without compressing the curve: only a small part of the picture changes.
    assert 0 < (pictures[0] != pictures[2]).any(axis=-1).mean() < 0.05


def test_a_run_without_a_finished_game_can_be_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, "young", name="young", seed=1, score=0.0)
    (run / "metrics.jsonl").write_text('{"env_frames": 10, "wall_seconds": 1, "frames_per_second": 10, "episode_return_mean_100": null}\n')
    plot_runs([run], tmp_path / "curve.svg")
    assert "no game has ended yet" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize(("output", "message"), [("curve.bmp", "must end in .png"), ("file/curve.png", "cannot write")])
def test_invalid_outputs_are_refused_in_one_line(tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "file").touch()
    run = make_run(tmp_path, "pong", name="pong", seed=1, score=2.0)
    with pytest.raises(FileError, match=message) as caught:
        plot_runs([run], tmp_path / output)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileError, match="no run directories"):
        plot_runs([], tmp_path / "curve.png")


@pytest.mark.processes
def test_importing_the_modules_loads_neither_torch_nor_matplotlib() -> None:
    modules = ", ".join(f"herd.view.plots.{name}" for name in ("curves", "bandit", "population", "scores"))
    script = f"import sys, {modules}; print({{'torch', 'matplotlib'}} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_sweep_agents_are_named_by_values_and_averaged_over_seeds(tmp_path: Path) -> None:
    runs = []
    for seed in (1, 2):
        run = tmp_path / f"laser-s{seed}"
        for agent in (0, 1):
            agent_run = make_run(tmp_path, f"laser-s{seed}/agents/{agent}", name="unused", seed=seed, score=float(seed + 10 * agent))
            (agent_run / "config.yaml").unlink()
            runs.append(agent_run)
        config = {
            "name": run.name,
            "seed": seed,
            "env": {"tasks": ["pong"]},
            "sweep": {"optimizer.learning_rate": [6e-4], "loss.entropy_cost": [0.01, 2]},
        }
        (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert averaged(runs) == {"learning_rate 0.0006, entropy_cost 0.01": 7.5, "learning_rate 0.0006, entropy_cost 2": 57.5}


def test_population_members_are_named_by_their_numbers(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"pbt/agents/{agent}", name="unused", seed=1, score=float(agent)) for agent in (0, 1)]
    for run in runs:
        (run / "config.yaml").unlink()
    rule = {"draw": "log_uniform", "low": 1e-4, "high": 1e-2}
    config = {"name": "pbt", "seed": 1, "env": {"tasks": ["pong"]}, "sweep": {"optimizer.learning_rate": rule}}
    labels = {}
    for strategy in ("pbt", "none"):
        (tmp_path / "pbt" / "config.yaml").write_text(yaml.safe_dump({**config, "population": {"strategy": strategy}}))
        labels[strategy] = sorted({row.curve for row in drawn(runs) if row.panel == "pong"})
    assert labels["pbt"] == ["agents/0", "agents/1"]
    assert all(label.startswith("learning_rate ") for label in labels["none"])
    assert len(labels["none"]) == 2


def test_many_tasks_have_a_panel_each_and_one_of_their_mean_score(tmp_path: Path) -> None:
    tasks = tuple(f"game_{number}" for number in range(14))
    run = make_run(tmp_path, "many", name="many", seed=1, score=2.0, tasks=tasks)
    points = points_of(run)
    for step, point in enumerate(points):
        point["human_normalised_mean_capped"] = None if step < 2 else step / 10
    write_points(run, points)
    asked = []

    def reference(suite: str, task: str) -> tuple[float, float] | None:
        asked.append((suite, task))
        return (0.0, 20.0) if task != "game_3" else None

    rows = drawn([run])
    assert {row.panel for row in rows} == {*tasks, "human_normalised_mean_capped", "frames_per_second"}
    # The mean is over the points that have one.
    together = [(row.x, row.mean) for row in rows if row.panel == "human_normalised_mean_capped"]
    assert together == [(3e6, 0.2), (4e6, 0.3), (5e6, 0.4)]
    plot_runs([run], tmp_path / "curve.png", reference_scores=reference)
    assert asked == [("atari", task) for task in tasks]
    height, width, _ = matplotlib.image.imread(tmp_path / "curve.png").shape
    assert width / 4 > 500  # four columns of panels stay readable, as more would
    assert height / 4 > 400


def test_a_single_task_has_no_panel_of_mean_scores(tmp_path: Path) -> None:
    run = make_run(tmp_path, "one", name="one", seed=1, score=2.0)
    text = (run / "metrics.jsonl").read_text().replace('"wall_seconds"', '"human_normalised_mean_capped": 0.5, "wall_seconds"')
    (run / "metrics.jsonl").write_text(text)
    assert {row.panel for row in drawn([run])} == {"pong", "frames_per_second"}


def evaluations(run: Path, *points: tuple[int, int, float, float | None], task: str = "pong") -> None:
    """Write evaluations, given as (lineage, updates, mean, standard error)."""
    records = [
        {"lineage": lineage, "learner_updates": updates, "tasks": {task: {"mean": mean, "standard_error": error}}}
        for lineage, updates, mean, error in points
    ]
    (run / "evaluation.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def points_with(run: Path, **columns: list[object]) -> None:
    """Add columns to the points; a dotted name addresses a nested value."""
    points = points_of(run)
    for name, values in columns.items():
        for point, value in zip(points, values, strict=True):
            section, _, key = name.rpartition("__")
            (point.setdefault(section, {}) if section else point)[key] = value
    write_points(run, points)


def test_evaluations_are_drawn_at_the_frames_of_their_updates(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", name="run", seed=1, score=1.0)
    points_with(run, learner_updates=[100, 200, 300, 400, 500])
    # The run was restored from update 400 to update 250, so evaluations of the lost updates are dropped.
    evaluations(run, (1, 0, -21.0, 0.5), (1, 150, -5.0, 1.0), (1, 400, 9.0, 1.0), (2, 300, 3.0, None), (2, 600, 4.0, 2.0))
    rows = [row for row in drawn([run]) if row.curve == "run: evaluation"]
    assert [(row.x, row.mean) for row in rows] == [(0.0, -21.0), (1.5e6, -5.0), (3e6, 3.0), (5e6, 4.0)]
    assert [row.high for row in rows[1:3]] == pytest.approx([-3.04, np.nan], nan_ok=True)
    assert [row.x for row in drawn([run], x="wall_seconds") if row.curve == "run: evaluation"] == [0.0, 150.0, 300.0, 500.0]
    picture = tmp_path / "curve.svg"
    plot_runs([run], picture)
    assert "evaluation of frozen weights, 95 %" in picture.read_text()


def test_an_incomplete_evaluation_is_skipped_and_a_damaged_one_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", name="run", seed=1, score=1.0)
    points_with(run, learner_updates=[100, 200, 300, 400, 500])
    evaluations(run, (1, 100, 1.0, 0.1))
    file = run / "evaluation.jsonl"
    whole = file.read_text()
    file.write_text(whole + '{"lineage": 1, "learner_up')
    assert len([row for row in drawn([run]) if row.curve == "run: evaluation"]) == 1
    file.write_text("{}\n" + whole)
    with pytest.raises(FileError, match=r"evaluation\.jsonl, line 1, is not an evaluation"):
        plot_runs([run], tmp_path / "curve.svg")


def test_the_learning_panels_show_every_recorded_number(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", name="run", seed=1, score=1.0)
    points_with(
        run,
        learner_updates=[0, 100, 200, 300, 400],
        loss_total=[None, 0.5, 0.25, 0.125, 0.0625],
        entropy=[None, 1.0, 0.9, 0.8, 0.7],
        policy_lag_mean=[0.0, 4.0, 5.0, 6.0, 5.0],
        clever_share=[None, 0.1, 0.2, 0.3, 0.4],  # a metric of a user's own loss
        health__update_kl=[None, 0.0, 1e-3, 1e-2, 1e-3],
        health__explained_variance=[None, -80.0, 0.5, 0.6, 0.7],
    )
    shown: dict[str, list[float]] = {}
    for row in drawn([run], panels="learning"):
        shown.setdefault(row.panel, []).append(row.mean)
    # Each curve appears twice: the values, and their trailing mean.
    assert {name: values[: len(values) // 2] for name, values in shown.items()} == {
        "loss_total": [0.5, 0.25, 0.125, 0.0625],
        "entropy": [1.0, 0.9, 0.8, 0.7],
        "policy_lag_mean": [4.0, 5.0, 6.0, 5.0],  # nothing had been measured at 0 updates
        "clever_share": [0.1, 0.2, 0.3, 0.4],
        "health.update_kl": [1e-3, 1e-2, 1e-3],  # 0 cannot be shown on a logarithmic axis
        "health.explained_variance": [-80.0, 0.5, 0.6, 0.7],
    }
    picture = tmp_path / "learning.svg"
    plot_runs([run], picture, panels="learning")
    text = picture.read_text()
    assert all(title in text for title in ("entropy of the policy", "explained variance of the values", "clever share"))
    assert {row.panel for row in drawn([run])} == {"pong", "frames_per_second"}
    points_with(run, health__update_kl=[None, 0.0, 0.0, 0.0, 0.0])
    plot_runs([run], picture, panels="learning")
    assert all(words in picture.read_text() for words in ("KL of one update", "no value above 0"))
    young = make_run(tmp_path, "young", name="young", seed=1, score=1.0)
    with pytest.raises(FileError, match="the learner has made no update yet"):
        plot_runs([young], picture, panels="learning")


def test_speed_is_drawn_from_the_first_update(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", name="run", seed=1, score=1.0)
    points_with(run, learner_updates=[0, 0, 100, 200, 300], frames_per_second=[0.0, 0.0, 900.0, 1000.0, 950.0])
    assert [row.mean for row in drawn([run]) if row.panel == "frames_per_second"] == [900.0, 1000.0, 950.0]


def test_one_run_has_no_legend_and_several_describe_their_band(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"alpha-s{seed}", name=f"alpha-s{seed}", seed=seed, score=float(seed)) for seed in range(1, 7)]

    def text(number: int) -> str:
        plot_runs(runs[:number], tmp_path / "curve.svg")
        return (tmp_path / "curve.svg").read_text()

    assert "alpha" not in text(1)
    assert "alpha: mean of 3 runs, band from lowest to highest" in text(3)
    assert "alpha: mean of 6 runs, 95 % bootstrap interval" in text(6)


def test_four_tasks_with_human_scores_get_an_interquartile_mean(tmp_path: Path) -> None:
    tasks = ("a", "b", "c", "d")
    runs = [make_run(tmp_path, f"many-s{seed}", name="many", seed=seed, score=1.0, tasks=tasks) for seed in (1, 2)]
    for run, gain in zip(runs, (0.0, 0.2), strict=True):
        points = points_of(run)
        for step, point in enumerate(points):
            for number, task in enumerate(tasks):
                point["tasks"][task]["human_normalised"] = None if step == 0 else gain + number * step / 10
        write_points(run, points)
    rows = [row for row in drawn(runs) if row.panel == "human_normalised_interquartile_mean"]
    # The final values are 0, 0.4, 0.8, 1.2, and the same plus 0.2; the two lowest and the two highest are dropped.
    assert rows[-1].mean == pytest.approx((0.4 + 0.6 + 0.8 + 1.0) / 4)
    assert (rows[-1].low, rows[-1].high) == pytest.approx((0.6, 0.8))
    assert (rows[0].x, rows[0].num_runs) == (2e6, 2)
