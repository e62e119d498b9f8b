"""The learning benchmark: a curve's numbers by hand, tables, the plot, and runs that are complete or must be trained again."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.intervals import estimate
from benchmarks.learning import __main__ as command
from benchmarks.learning import compare, redraw
from benchmarks.learning.picture import draw
from benchmarks.learning.results import (
    RunResult,
    as_json,
    markdown,
    median_reached,
    normalised,
    others_normalised,
    run_result,
    run_result_from_json,
    tried,
)
from benchmarks.learning.suites import SUITES, others_curves, others_levels
from herd.components.suites.atari import atari_scores
from herd.components.suites.scores import ReferenceScores
from herd.config.loading import load_settings
from herd.evaluation.protocols import TrainingScore, protocol_named

ROOT = Path(__file__).parents[2]
NAN = float("nan")


def result(game: str = "pong", seed: int = 1, score: float = 5.0, reach: float = 1.0) -> RunResult:
    """A run of 4 M frames in 8 minutes. Its return is ``score``, and 18 from the fraction ``reach`` of its length on."""
    frames = np.linspace(0, 4e6, 9)
    returns = np.where(frames >= reach * 4e6, 18.0, score)
    return run_result(
        game,
        seed,
        env_frames=frames,
        wall_seconds=frames / 1e4 * 1.2,
        returns=returns,
        levels=(18.0,),
        evaluation=None,
        processor="a processor" if seed < 3 else "another",
        date=f"2026-11-2{seed}",
    )


def test_a_result_has_the_last_return_and_when_levels_were_reached() -> None:
    frames = np.array([0.0, 1e6, 2e6, 3e6, 4e6])
    found = run_result(
        "pong",
        7,
        env_frames=frames,
        wall_seconds=np.array([0.0, 100.0, 220.0, 300.0, 420.0]),
        returns=np.array([NAN, 3.0, 19.0, 1.0, 5.0]),
        levels=(0.0, 18.0, 20.0),
        evaluation=4.5,
        processor="p",
        date="2026-11-24",
    )
    assert [(each.level, each.env_frames, each.minutes) for each in found.reached] == [(0.0, 1e6, 100 / 60), (18.0, 2e6, 220 / 60)]
    assert (found.last_return, found.highest, found.env_frames, found.minutes) == (5.0, 19.0, 4e6, 7.0)
    assert found.frames_per_second == pytest.approx(4e6 / 420)
    assert found.curve[0] == (1e6, 100 / 60, 3.0)
    with pytest.raises(ValueError, match="no game ended"):
        run_result(
            "pong", 1, env_frames=frames, wall_seconds=frames, returns=frames * NAN, levels=(), evaluation=None, processor="p", date="d"
        )


def test_a_protocol_that_counts_games_of_training_decides_the_last_return() -> None:
    by_curve = result(score=5.0, reach=9)
    frames, returns = np.array([0.0, 4e6]), np.array([5.0, 5.0])
    counted = run_result(
        "pong", 2, env_frames=frames, wall_seconds=frames, returns=returns, levels=(), evaluation=None, processor="p", date="d",
        counted=TrainingScore(7.0, 31, 4_000_000, 9),
    )  # fmt: skip
    assert [(one.last_return, one.games) for one in (by_curve, counted)] == [(5.0, None), (7.0, 31)]
    assert "| 6.0 (5.0 to 7.0); -, 31 games |" in markdown(report_of("a", [], by_curve, counted))
    assert run_result_from_json(json.loads(json.dumps(asdict(counted)))) == counted


def test_the_median_counts_seeds_that_never_reached_the_level() -> None:
    early, late, never = result(reach=0.25), result(reach=0.75), result(reach=2.0)
    assert median_reached([early, late, never], 18.0) == (3e6, 6.0, 2)
    assert median_reached([early, never], 18.0) == (None, None, 1)
    assert median_reached([early], 18.0) == (1e6, 2.0, 1)


def test_published_results_are_read_from_the_tables() -> None:
    (rainbow,) = (curve for curve in others_curves("pong") if curve.name == "Rainbow (nature)")
    assert rainbow.at(10e6) == 15.2
    assert rainbow.at(4e6) == pytest.approx((-18.70 - 12.57) / 2)  # between 3 and 5 million
    assert (rainbow.at(0.5e6), rainbow.at(150e6)) == (None, None)
    assert {(each.name, each.level, each.env_frames) for each in others_levels("pong")} == {("PPO", 18.0, 3.4e6), ("PQN", 18.0, 6.4e6)}
    for suite in SUITES.values():
        assert all(len(others_curves(game)) == 20 for game in suite.games)


def test_normalised_scores_are_aggregated_over_games_and_runs() -> None:
    references = {"pong": ReferenceScores("pong", 0.0, 10.0, None, 6), "qbert": ReferenceScores("qbert", 100.0, 200.0, None, 6)}
    results = [result("pong", 1, 2.0, 2.0), result("pong", 2, 4.0, 2.0), result("qbert", 1, 150.0, 2.0), result("qbert", 2, 170.0, 2.0)]
    # pong scores 0.2 and 0.4, qbert 0.5 and 0.7.
    assert normalised(results, references) == pytest.approx({"median": 0.45, "interquartile_mean": 0.45})
    assert normalised(results, {}) == {}
    third = [*results, result("pong", 3, 6.0, 2.0), result("qbert", 3, 160.0, 2.0)]
    found = normalised(third, references)["intervals"]
    # Each game is resampled by itself: the mean of both is lowest if pong's worst and qbert's worst are drawn three times.
    assert 0.35 < found["median"][0] < 0.42 < 0.5 < 0.58 < found["median"][1] < 0.65
    assert 0.2 <= found["interquartile_mean"][0] < 0.5 < found["interquartile_mean"][1] <= 0.7
    assert "intervals" not in normalised(third[:-1], references)
    # Four seeds of one game and two of the other cannot be resampled together.
    assert "intervals" not in normalised([*third[:-1], result("pong", 4, 6.0, 2.0)], references)
    others = others_normalised(SUITES["atari5"].games, 10e6, atari_scores())
    scores = []
    for game in SUITES["atari5"].games:
        reference = atari_scores()[game]
        (dqn,) = (curve.at(10e6) for curve in others_curves(game) if curve.name == "DQN (nature)")
        assert dqn is not None
        scores.append((dqn - reference.random) / (reference.human - reference.random))
    assert others["DQN (nature)"] == pytest.approx({"median": sorted(scores)[2], "interquartile_mean": np.mean(sorted(scores)[1:4])})


def report_of(label: str, overrides: list[str], *results: RunResult) -> dict[str, Any]:
    about = {
        "suite": "pong",
        "label": label,
        "protocol": "dopamine" if overrides else None,
        "overrides": overrides,
        "command": "python -m benchmarks.learning --suite pong --seeds 1 --first_seed 3 --only pong --set a=1 --kept 'no; one seed'",
        "kept": "no",
    }
    return as_json(results, **about)


def test_tables_and_plot_show_changes_and_results(tmp_path: Path) -> None:
    runs = [replace(result(seed=seed, reach=reach), evaluation=10.0 * seed) for seed, reach in ((1, 0.25), (2, 0.75), (3, 9))]
    report = report_of("wide", ["network.width_multiplier=2"], *runs)
    text = markdown(report)
    assert "| pong | 3 | 18.0 (5.0 to 18.0) | 20.0 | 8.0 |" in text
    assert "a processor, 2026-11-21 to 2026-11-22, seeds 1, 2; another, 2026-11-23, seed 3." in text
    assert "pong, wide, dopamine protocol" in text
    assert "`network.width_multiplier=2`" in text
    assert "3.0 M, 6.0 min (2 of 3)" in text
    # The last of the commands that made it trained one seed; this one trains all.
    assert "`python -m benchmarks.learning --suite pong --set a=1 --seeds 3`" in text
    some = {**report_of("some", [], result("qbert", seed=2), result("phoenix", seed=3)), "suite": "atari5"}
    assert "--set a=1 --seeds 2 --first_seed 2 --only qbert --only phoenix`" in markdown(some)
    assert "PPO 18 at 3.4 M" in text
    # Others have as many frames as the shortest run: halfway between 3 and 5 million.
    longer = report_of("wide", [], runs[0], replace(runs[1], env_frames=10e6))
    assert "Rainbow (nature) -15.6," in markdown(longer)
    assert "| PPO (impala), dopamine protocol |" not in text
    assert "| PPO (impala), dopamine protocol |" in markdown(report_of("two", [], result(), result("qbert")))
    (tmp_path / "pong-wide.json").write_text(json.dumps(report))
    unplayed = report_of("a", [], result(reach=9))
    assert "| pong | 1 | 5.0 | - | 8.0 |" in markdown(unplayed)
    (tmp_path / "pong-a.json").write_text(json.dumps(unplayed))
    rows = [line for line in tried(tmp_path).splitlines() if line.startswith("| pong")]
    assert [row.split(" | ")[1:3] for row in rows] == [["a", "-"], ["wide", "dopamine"]]
    assert "18: 0 of 1" in rows[0]


def test_the_command_of_a_report_can_be_pasted_into_a_shell() -> None:
    words = ["--suite", "pong", "--runs", "folder", "--kept", "no; one seed", "--output=elsewhere"]
    assert command._command(words) == "python -m benchmarks.learning --suite pong --kept 'no; one seed'"


def test_labels_are_compared_by_means_with_intervals(tmp_path: Path) -> None:
    one = [result(seed=seed, score=score, reach=9) for seed, score in ((1, 1.0), (2, 3.0), (3, 5.0))]
    other = [result(seed=1, score=7.0, reach=9), result("qbert", score=100.0, reach=9)]
    interval = estimate([1.0, 3.0, 5.0])
    assert interval.low < 3.0 < interval.high
    assert compare.table({"one": one, "other": other}).splitlines()[2:] == [
        f"| one | 3.0 ({interval.low:.1f} to {interval.high:.1f}; 3) | - |",
        "| other | 7.0 | 100.0 |",
    ]
    compare.draw({"one": one, "other": other}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_everything_is_drawn_again_from_the_raw_data(tmp_path: Path) -> None:
    (tmp_path / "pong-wide.json").write_text(json.dumps(report_of("wide", ["network.width_multiplier=2"], result(seed=4))))
    redraw.main(["--output", str(tmp_path)])
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "README.md",
        "pong-wide.json",
        "pong-wide.md",
        "pong-wide.png",
        "scores.json.gz",
    ]
    curves = json.loads(gzip.decompress((tmp_path / "scores.json.gz").read_bytes()))
    own, *others = curves
    assert {key: own[key] for key in ("task", "method", "seed", "protocol")} == {
        "task": "atari_pong",
        "method": "herd-pong-wide",
        "seed": 4,
        "protocol": "dopamine",
    }
    assert (own["xs"][-1], own["ys"][-1]) == (4e6, 18.0)
    (rainbow,) = (curve for curve in others if curve["method"] == "Rainbow (nature)")
    (published,) = (curve for curve in others_curves("pong") if curve.name == "Rainbow (nature)")
    assert (rainbow["xs"], rainbow["ys"], rainbow["seed"]) == (list(published.env_frames), list(published.returns), None)


def test_labels_of_two_protocols_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["compare", "--suite", "pong", "plain", "sticky"])
    for label, overrides in (("plain", []), ("sticky", ["network.width_multiplier=2"])):
        (tmp_path / f"pong-{label}.json").write_text(json.dumps(report_of(label, overrides, result())))
    with pytest.raises(SystemExit):
        compare.main()
    assert "plain: no protocol (the recipe's games); sticky: dopamine protocol" in capsys.readouterr().err


@pytest.mark.parametrize("game", sorted({game for suite in SUITES.values() for game in suite.games}))
def test_the_plot_has_room_for_all_others(game: str, tmp_path: Path) -> None:
    draw([replace(result(game, seed), env_frames=200e6) for seed in (1, 2)], tmp_path / "picture.png", title=game)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_suites_train_shipped_experiments_for_their_stated_frames() -> None:
    for name, suite in SUITES.items():
        settings = load_settings([ROOT / f"experiments/{suite.experiment}.yaml"], ["--env.tasks", suite.games[0], *suite.words], {})
        assert settings.stop.env_frames is not None
        assert settings.stop.env_frames <= settings.optimizer.schedule_env_frames  # type: ignore[attr-defined]
        if name in {"atari-trials", "impala-shallow"}:  # the beginning of a run
            assert suite.frames < settings.stop.env_frames
        else:
            assert suite.frames == settings.stop.env_frames


@pytest.mark.parametrize("suite", [name for name in sorted(SUITES) if SUITES[name].experiment.startswith("atari-")])
@pytest.mark.parametrize("protocol", ["dopamine", "machado", "saber"])
def test_a_protocol_trains_the_experiments_of_papers_too(suite: str, protocol: str) -> None:
    words = ["--evaluation.protocol", protocol, *SUITES[suite].words]
    env = load_settings(command.run_files(SUITES[suite], protocol), words, {}).env
    assert protocol_named(protocol).objection(env) is None
    assert env.model_dump().items() >= {"sticky_action_probability": 0.25, "life_loss_ends_episode": False}.items()


@pytest.mark.processes
def test_finished_seeds_are_skipped_and_labels_are_unique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[str] = []
    real = subprocess.Popen
    points = [{"env_frames": 1_000_000 * n, "wall_seconds": 150.0 * n, "episode_return_mean_100": 4.0 * n - 20.0} for n in (1, 2)]
    for point, (episodes, total) in zip(points, ((10, -150.0), (12, -152.0)), strict=True):
        point |= {"episodes": episodes, "episode_return_sum": total}

    def popen(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        directory = Path(words[words.index("--run_dir") + 1])
        trained.append(f"{words[words.index('--name') + 1]} {words[-1]}")
        directory.mkdir(parents=True)
        (directory / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        shutil.copy(ROOT / "experiments/pong.yaml", directory / "config.yaml")
        (directory / "report.json").write_text('{"machine": {"processor": "p"}}')
        (directory / "starts.jsonl").write_text('{"started": "2026-11-24T01:02:03Z"}\n')
        return real([sys.executable, "-c", ""], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)

    def run(*words: str) -> None:
        where = ["--runs", str(tmp_path / "runs"), "--output", str(tmp_path / "out"), "--games", "0"]
        monkeypatch.setattr(sys, "argv", ["learning", "--suite", "pong", *where, *words])
        command.main()

    run("--seeds", "1", "--frames", "2e6", "--set", "optimizer.learning_rate=1e-3")
    run("--seeds", "2", "--frames", "2e6", "--set", "optimizer.learning_rate=1e-3")
    assert trained == ["pong-seed1 2000000", "pong-seed2 2000000"]
    report = json.loads((tmp_path / "out" / "pong-recipe.json").read_text())
    assert [run["seed"] for run in report["runs"]] == [1, 2]
    assert report["overrides"] == ["optimizer.learning_rate=1e-3"]
    assert str(tmp_path) not in (tmp_path / "out" / "pong-recipe.json").read_text()
    assert "pong | recipe" in (tmp_path / "out" / "README.md").read_text()
    assert report["runs"][0]["curve"] == [[1e6, 2.5, -16.0], [2e6, 5.0, -12.0]]
    shutil.rmtree(tmp_path / "runs")  # as on another machine, where only the results are
    run("--seeds", "1", "--first_seed", "3", "--frames", "2e6", "--set", "optimizer.learning_rate=1e-3")
    run("--seeds", "3", "--frames", "2e6", "--set", "optimizer.learning_rate=1e-3")
    assert trained[2:] == ["pong-seed3 2000000"]
    continued = json.loads((tmp_path / "out" / "pong-recipe.json").read_text())["runs"]
    assert [run["seed"] for run in continued] == [1, 2, 3]
    assert continued[:2] == report["runs"]
    # The ten games before the last million frames do not count.
    run("--seeds", "1", "--frames", "2e6", "--protocol", "dopamine", "--label", "sticky")
    (sticky,) = json.loads((tmp_path / "out" / "pong-sticky.json").read_text())["runs"]
    assert (sticky["last_return"], sticky["games"]) == (-1.0, 2)
    assert (report["runs"][0]["last_return"], report["runs"][0]["games"]) == (-12.0, None)
    with pytest.raises(SystemExit, match="runs of other settings: choose another --label"):
        run("--seeds", "1", "--frames", "2e6")
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(SystemExit, match="results of other settings: choose another --label"):
        run("--seeds", "1", "--frames", "2e6")
    with pytest.raises(SystemExit):
        run("--seeds", "1", "--set", "learning_rate")
    assert "give key=value" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("--only", "qbert", "--only", "pong")
    assert "--only: pong has pong" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("--label", "rate-2.5e-4")  # a dot would end the name of the report's files
    assert "--label: small letters, digits and dashes" in capsys.readouterr().err
    assert len(trained) == 4
