import csv
import hashlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from herd.acting.policy import LocalPolicy
from herd.acting.temperatures import Temperatures
from herd.cli.main import main
from herd.components.suites import make_environments
from herd.components.suites.atari import atari_scores
from herd.evaluation import play
from herd.evaluation.evaluate import evaluate_runs
from herd.evaluation.play import num_environments, start_play
from herd.evaluation.protocols import EvaluationError
from herd.evaluation.report import EvaluationReport, TaskResult, TaskScore, print_report, summarise_tasks, task_result
from herd.evaluation.trained_run import load_trained_run
from herd.files import sealed
from herd.run.tensors import encode_weights
from tests.acting.playing import make_group, play_unroll
from tests.evaluation.conftest import BREAKOUT, CATCH


def test_evaluation_gives_the_same_outputs_as_the_actor(make_run: Callable[..., Path]) -> None:
    run = load_trained_run(make_run(BREAKOUT))
    settings, seed = run.settings, 11
    actor = LocalPolicy(run.agent, seed=seed, precision=torch.float32)
    group = make_group(settings, 3)
    trained = [play_unroll(settings, [group], actor) for _ in range(10)]

    mirrored = make_environments(settings.env, num_environments=3, first_slot=0, seed=3, num_threads=1)
    playing = start_play(run.agent, settings, mirrored, seed=seed, greedy=False, temperatures=Temperatures())
    for unroll in trained:
        for row in range(settings.algorithm.unroll_length):
            choice = playing.step().choice
            np.testing.assert_array_equal(choice.behaviour_parameters, unroll["behaviour_parameters"][:, row], err_msg=f"row {row}")
            np.testing.assert_array_equal(choice.actions, unroll["actions"][:, row])
    # Lives were lost on the way; each loss resets the core.
    assert sum(int(unroll["terminated"].sum()) for unroll in trained) >= 3
    group.environments.close()
    mirrored.close()


def test_a_run_is_scored_and_the_protocol_is_written(make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run(CATCH)
    assert main(["evaluate", str(run_dir), "--episodes", "45", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    files = [run_dir / "evaluation-250.json", run_dir / "evaluation-250.csv"]  # a single task without reference scores has no plot
    assert said.splitlines()[-2:] == [str(file) for file in files]
    written = json.loads(files[0].read_text())
    (task,) = written["tasks"]
    (returns,) = task["episode_returns"]
    assert (task["runs"], task["episodes"], len(returns)) == (1, 45, 45)
    assert set(returns) == {-1.0, 1.0}
    assert task["mean"] == pytest.approx(np.mean(returns))
    low, high = task["mean_interval_95"]
    assert low < task["mean"] < high
    assert task["mean_env_frames"] == 5.0
    (run,) = written["runs"]
    assert (run["run"], run["learner_updates"], run["env_frames"], run["checkpoint"]) == ("run", 250, 160_000, "000000000250")
    protocol = written["protocol"]
    assert (protocol["name"], protocol["episodes_per_task"], protocol["seed"], protocol["policy"]) == (None, 45, 3, "sampled")
    assert protocol["differs_from_training"] == protocol["differs_from_protocol"] == []
    assert written["summary"] is None
    with files[1].open() as lines:
        (row,) = csv.DictReader(lines)
    assert (row["task"], row["episodes"], row["human_normalised"]) == ("catch", "45", "")
    assert float(row["mean"]) == pytest.approx(task["mean"])
    assert float(row["interval_high"]) == pytest.approx(high)
    # The same evaluation again writes the same file, and --json prints it.
    assert main(["evaluate", str(run_dir), "--episodes", "45", "--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == written
    assert evaluate_runs([run_dir], episodes=45, seed=4).tasks[0].episode_returns != (tuple(returns),)


@pytest.mark.parametrize(
    ("env", "network", "labels", "names"),
    [
        ({"tasks": ["catch", "catch_deceptive"]}, {}, ["catch (1 of 2)", "catch_deceptive (2 of 2)"], ["catch", "catch_deceptive"]),
        # catch alone has no instructions, but the network reads some: both tasks share their spaces and are played together.
        (
            {"tasks": ["catch", "catch_instructed"]},
            {"language": True},
            ["catch, catch_instructed"],
            ["catch", "catch_instructed"],
        ),
        ({"tasks": ["catch"], "reward_scales": [1.0, 1000.0]}, {}, ["catch, catch_x1000"], ["catch", "catch_x1000"]),
    ],
)
def test_progress_and_scores_are_reported_by_task(
    make_run: Callable[..., Path], env: dict[str, Any], network: dict[str, Any], labels: list[str], names: list[str]
) -> None:
    told: list[tuple[str, int, int]] = []
    run_dir = make_run({"env": {**CATCH["env"], **env}, "network": {"torso": "mlp", **network}})
    report = evaluate_runs([run_dir], episodes=7, on_progress=lambda *now: told.append(now))
    assert list(dict.fromkeys(label for label, _, _ in told)) == labels
    assert [label for label, done, all_games in told if done == all_games] == labels
    assert [(task.task_name, task.episodes) for task in report.tasks] == [(name, 7) for name in names]
    for task in report.tasks:
        assert {round(abs(value), 3) for value in task.episode_returns[0]} <= ({1000.0} if task.task_name == "catch_x1000" else {0.2, 1.0})


def test_overrides_change_the_games_and_are_recorded(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Any] = []

    def spy(env: Any, **arguments: Any) -> object:
        played.append(env)
        return make_environments(env, **arguments)

    monkeypatch.setattr(play, "make_environments", spy)
    run_dir = make_run(BREAKOUT)
    overrides = ["--env.noop_max", "5", "--env.sticky_action_probability", "0.25", "--env.max_episode_frames", "200"]
    report = evaluate_runs([run_dir], episodes=2, overrides=overrides, environments=1, greedy=True)
    (env,) = played
    assert (env.noop_max, env.sticky_action_probability, env.max_episode_frames, env.frame_height) == (5, 0.25, 200, 42)
    assert report.protocol.differs_from_training == ("noop_max", "sticky_action_probability", "max_episode_frames")
    assert (report.protocol.policy, report.protocol.environments) == ("greedy", 1)
    (task,) = report.tasks
    assert task.truncated_episodes == 2
    assert task.mean_env_frames is not None
    assert task.mean_env_frames <= 204
    reference = atari_scores()["breakout"]
    assert task.human_normalised == pytest.approx((task.mean - reference.random) / (reference.human - reference.random))


@pytest.mark.parametrize(
    ("requested", "episodes", "tasks", "expected"),
    [(None, 200, 1, 29), (None, 3, 1, 3), (None, 200, 57, 57), (None, 10, 2, 20), (8, 200, 2, 8), (64, 10, 1, 10)],
)
def test_the_number_of_environments_is_a_multiple_of_the_tasks(requested: int | None, episodes: int, tasks: int, expected: int) -> None:
    assert num_environments(requested, episodes=episodes, num_tasks=tasks) == expected
    with pytest.raises(EvaluationError, match="environments must be a multiple of the 2 tasks, not 3"):
        num_environments(3, episodes=episodes, num_tasks=2)


def test_runs_that_cannot_be_evaluated_are_refused_in_one_line(make_run: Callable[..., Path], tmp_path: Path) -> None:
    good = make_run(CATCH)
    foreign = make_run(CATCH, name="foreign")
    config = foreign / "config.yaml"
    config.write_text(config.read_text().replace("frame_height: 6", "frame_height: 7"))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"run_dir": foreign}, "another network"),
        ({"run_dir": good, "checkpoint": tmp_path / "nothing"}, "missing"),
        ({"run_dir": good, "overrides": ["--env.max_episode_frames", "0"]}, "env.max_episode_frames: .* not '0'"),
        ({"run_dir": good, "overrides": ["--env.noop_max", "5"]}, "env.noop_max: does not apply to env.suite catch; env.suite atari has"),
        (
            {"run_dir": good, "overrides": ["--env.frame_height", "7"]},
            "--env.frame_height 7: the policy was trained with other observations",
        ),
        ({"run_dir": good, "overrides": ["--seed", "7"]}, "--seed: only settings of env"),
    )
    for arguments, message in cases:
        with pytest.raises(EvaluationError, match=message) as caught:
            evaluate_runs([arguments.pop("run_dir")], **arguments)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "same", "other", "line"),
    [
        (
            {"suite": "vizdoom", "tasks": ["basic"]},
            "rocket_basic",
            "defend_the_center",
            "--env.tasks defend_the_center: the policy was trained with other actions: "
            "NOTHING, MOVE_LEFT, MOVE_RIGHT, ATTACK in basic, but NOTHING, TURN_LEFT, TURN_RIGHT, ATTACK in defend_the_center",
        ),
        (
            {"tasks": ["pong"]},
            "space_invaders",
            "qbert",
            "--env.tasks qbert: the policy was trained with other actions: "
            "NOOP, FIRE, RIGHT, LEFT, RIGHTFIRE, LEFTFIRE in pong, but NOOP, FIRE, UP, RIGHT, LEFT, DOWN in qbert",
        ),
        ({"tasks": ["pong"], "action_set": "full"}, "qbert", None, None),
    ],
)
def test_only_tasks_with_the_same_actions_can_be_played(
    make_run: Callable[..., Path], env: dict[str, Any], same: str, other: str | None, line: str | None
) -> None:
    run_dir = make_run({"env": env})
    assert load_trained_run(run_dir, overrides=["--env.tasks", same]).spec.task_names == (same,)
    if other is not None:
        with pytest.raises(EvaluationError) as caught:
            load_trained_run(run_dir, overrides=["--env.tasks", other])
        assert str(caught.value) == line


def damaged(run: Path, **contents: bytes) -> None:
    """Replace files of the run's checkpoint, and keep their digests valid."""
    checkpoint = next((run / "checkpoints").iterdir())
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for stem, data in contents.items():
        name = next(name for name in [*manifest["files"], f"{stem}.safetensors"] if name.startswith(stem))
        (checkpoint / name).write_bytes(data)
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


STRIDES = b'{"w":{"dtype":"F32","shape":[2147483647,2147483647,2147483647,0],"data_offsets":[0,0]}}'


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ({"model": len(STRIDES).to_bytes(8, "little") + STRIDES}, "too many elements for a tensor"),
        ({"model": b""}, "too short for the header"),
        ({"state": b"[" * 100_000}, "nested too deeply"),
        ({"state": b"9" * 5000}, "digits"),
        ({"state": b"[]"}, "is not a mapping"),
        ({"value_statistics": encode_weights({"shift": torch.zeros(7)})}, "does not fit"),
    ],
)
def test_a_hostile_checkpoint_is_refused_in_one_line(make_run: Callable[..., Path], contents: dict[str, bytes], says: str) -> None:
    run = make_run(CATCH | {"value_scaling": {"kind": "popart"}})
    damaged(run, **contents)
    with pytest.raises(EvaluationError, match=says) as caught:
        evaluate_runs([run], episodes=1)
    assert "\n" not in str(caught.value)
    readable = make_run(CATCH, name="readable")
    damaged(readable, state=b'{"statistics": ["odd"]}')  # only a number in the report
    assert load_trained_run(readable).env_frames is None


def test_an_older_checkpoint_can_be_chosen(make_run: Callable[..., Path]) -> None:
    make_run(CATCH, updates=100)
    run_dir = make_run(CATCH, updates=250)
    assert load_trained_run(run_dir).learner_updates == 250
    assert load_trained_run(run_dir, run_dir / "checkpoints" / "000000000100").learner_updates == 100


def result_of(task: str, *runs: list[float], suite: str = "atari") -> TaskResult:
    return task_result(task, [TaskScore(np.array(returns), len(returns)) for returns in runs], suite=suite, seed=0)


def test_task_results_agree_with_a_manual_calculation() -> None:
    score = TaskScore(np.array([-21.0, 0.0, 12.0, 21.0]), 4, mean_env_frames=60.0, truncated_episodes=1)
    task = task_result("pong", [score], suite="atari", seed=0)
    assert (task.mean, task.median, task.lowest, task.highest) == (3.0, 6.0, -21.0, 21.0)
    assert task.standard_error == pytest.approx(np.std([-21, 0, 12, 21], ddof=1) / 2)
    assert (task.mean_env_frames, task.truncated_episodes) == (60.0, 1)
    assert task.human_normalised == pytest.approx((3 + 20.7) / 35.3)
    assert task.record_normalised == pytest.approx((3 + 20.7) / 41.7)
    assert task.human_normalised_interval_95 == pytest.approx([(end + 20.7) / 35.3 for end in task.mean_interval_95 or ()])
    assert result_of("pong", [1.0]).standard_error is result_of("pong", [1.0]).mean_interval_95 is None
    assert result_of("catch", [1.0, 2.0], suite="catch").human_normalised is None


def test_several_runs_of_a_task_have_equal_weight() -> None:
    task = result_of("pong", [10.0] * 6, [20.0, 20.0])
    assert (task.runs, task.episodes, task.mean, task.run_means) == (2, 8, 15.0, (10.0, 20.0))
    assert task.standard_error == pytest.approx(5.0)  # the standard error over runs: games of one run say nothing about another seed
    assert task.mean_interval_95 == (10.0, 20.0)


def test_several_games_are_aggregated_with_intervals() -> None:
    means = {"pong": 10.0, "breakout": 300.0, "seaquest": 900.0, "qbert": 14_000.0, "alien": 500.0}
    tasks = [result_of(name, [mean - 1, mean + 1, mean]) for name, mean in means.items()]
    summary = summarise_tasks(tasks, suite="atari", seed=0)
    assert summary is not None
    normalised = sorted(task.human_normalised or 0.0 for task in tasks)
    by_hand = {
        "mean": np.mean(normalised),
        "median": normalised[2],
        "mean_capped": np.mean(np.minimum(normalised, 1.0)),
        "interquartile_mean": np.mean(normalised[1:4]),
        "saber_mean": np.mean([task.record_normalised or 0.0 for task in tasks]),
        "saber_median": np.median([task.record_normalised or 0.0 for task in tasks]),
    }
    assert {name: estimate.score for name, estimate in summary.items()} == pytest.approx(by_hand)
    for name, estimate in summary.items():
        low, high = estimate.interval_95 or (0.0, 0.0)
        assert low < estimate.score < high, name
    assert (summary["mean_capped"].interval_95 or (9, 9))[1] < (summary["mean"].interval_95 or (0, 0))[0]  # breakout's 10x is capped
    assert summarise_tasks(tasks[:1], suite="atari", seed=0) is None
    # Means alone say nothing about their spread.
    bare = summarise_tasks([result_of(name, [mean]) for name, mean in means.items()], suite="atari", seed=0)
    assert bare is not None
    assert {estimate.interval_95 for estimate in bare.values()} == {None}


def printed(report: EvaluationReport, width: int = 200) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=width))
    return file.getvalue()


DICE = {**CATCH, "env": {**CATCH["env"], "tasks": ["catch", "catch_deceptive"]}, "loss": {"kind": "dice"}}


def test_the_table_shows_scores_protocol_and_temperatures(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(DICE)
    best = {"catch_deceptive": [11.18249, 12.46374], "catch": None}  # no game of catch has ended: it is played with tau = 1
    bandits = [{"agent": 0, "task": task, "best_inverse_temperatures": bounds} for task, bounds in best.items()]
    (run_dir / "bandit").mkdir()
    (run_dir / "bandit" / "state.json").write_text(sealed(json.dumps({"bandits": bandits})))
    report = evaluate_runs([run_dir], episodes=4, overrides=["--env.max_episode_frames", "4"])
    assert [task.inverse_temperatures for task in report.tasks] == [(1.0, 1.0), (11.18249, 12.46374)]
    text = printed(report, width=80)
    heading = next(line for line in text.splitlines() if line.lstrip().startswith("task "))
    assert heading.split()[-1] == "1/tau"
    assert "11.2-12.5" in text
    assert f"{report.tasks[0].mean:.2f}" in text
    words = " ".join(text.split())
    for told in (
        "run after 250 updates, 160,000 env frames",
        "drawn from the best-valued tile",
        "8 games reached a limit",
        "differs from training in max_episode_frames",
    ):
        assert told in words

    baseline = make_run({**DICE, "loss": {"kind": "dice", "ablation": "baseline"}}, name="baseline")
    for report in (evaluate_runs([run_dir], episodes=4, greedy=True), evaluate_runs([baseline], episodes=4)):
        assert [task.inverse_temperatures for task in report.tasks] == [None, None]
        assert "tau" not in printed(report)


@pytest.mark.processes  # environments that are processes
@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date:DeprecationWarning")
def test_a_vector_policy_is_scored_and_can_play_other_tasks(make_run: Callable[..., Path]) -> None:
    run_dir = make_run({"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}})
    (task,) = evaluate_runs([run_dir], episodes=4, overrides=["--env.max_episode_steps", "3"]).tasks
    assert (task.task_name, task.mean, task.truncated_episodes) == ("CartPole-v1", 3.0, 4)
    # How a machine steps its environments changes no game.
    assert evaluate_runs([run_dir], episodes=1, overrides=["--env.vectorization", "async"]).protocol.differs_from_training == ()
    report = evaluate_runs([run_dir], episodes=2, overrides=["--env.tasks", "CartPole-v0"])
    assert (report.tasks[0].task_name, report.protocol.differs_from_training) == ("CartPole-v0", ("tasks",))


ATARI = {"env": {"tasks": ["pong", "breakout"], "action_set": "full", "frame_height": 42, "frame_width": 42, "max_episode_frames": 400}}


def test_several_runs_give_one_table_and_a_plot(make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    games = ("pong", "boxing")
    runs = [
        str(make_run({"env": {**ATARI["env"], "tasks": [game]}, "seed": seed}, name=f"{game}-s{seed}")) for game in games for seed in (1, 2)
    ]
    stem = tmp_path / "tables" / "all"
    assert main(["evaluate", *runs, "--episodes", "2", "--environments", "2", "--output", str(stem)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-3:] == [f"{stem}.json", f"{stem}.csv", f"{stem}.png"]
    assert "4 runs" in said
    assert "intervals resample runs and their games" in " ".join(said.split())
    for heading in ("runs", "of human", "of record", "interquartile mean", "SABER, mean", "mean, each task at most 100 %"):
        assert heading in said
    written = json.loads((tmp_path / "tables" / "all.json").read_text())
    assert [(task["task_name"], task["runs"], task["episodes"]) for task in written["tasks"]] == [(game, 2, 4) for game in games]
    assert [run["seed"] for run in written["runs"]] == [1, 2] * 2
    assert set(written["summary"]) == {"mean", "median", "mean_capped", "interquartile_mean", "saber_mean", "saber_median"}
    assert (tmp_path / "tables" / "all.png").read_bytes().startswith(b"\x89PNG")


def test_a_protocol_decides_how_games_are_played(make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run({"env": {**ATARI["env"], "tasks": ["breakout"], "sticky_action_probability": 0.1}})
    report = evaluate_runs([run_dir], protocol="saber", episodes=1, environments=1, greedy=True)
    env = report.protocol.env
    assert (env["sticky_action_probability"], env["noop_max"], env["action_set"]) == (0.25, 0, "full")
    assert (env["max_episode_frames"], env["max_frames_without_reward"]) == (21_600_000, 18_000)
    assert report.protocol.differs_from_protocol == (
        "1 games (the paper: 100)",
        "greedy policy (the paper: sampled)",
        "env.life_loss_ends_episode True (the paper: False)",
    )
    assert main(["evaluate", str(run_dir), "--protocol", "impala-atari", "--episodes", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "impala-atari: mean of 200 games, 1..30 no-ops" in said
    assert "not as in the paper: 1 games (the paper: 200)" in said
    assert "evaluation-250-impala-atari.json" in said


def test_runs_that_do_not_fit_a_protocol_are_refused_in_one_line(make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    minimal = make_run({"env": {"tasks": ["breakout"], "frame_height": 42, "frame_width": 42}}, name="minimal")
    full = make_run({"env": {**ATARI["env"], "tasks": ["pong"]}}, name="full")
    sticky = make_run({"env": {**ATARI["env"], "tasks": ["boxing"], "sticky_action_probability": 0.25, "action_repeat": 3}}, name="sticky")
    catch = make_run(CATCH, name="catch")
    torn = make_run(CATCH, name="torn")
    weights = torn / "checkpoints" / "000000000250" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    one, other = str(full), str(minimal)
    for words, message in (
        (
            [other, "--protocol", "machado"],
            "minimal: machado needs env.action_set full, but the run has minimal, which cannot be changed after training",
        ),
        ([other, "--protocol", "dopamine"], "dopamine needs env.sticky_action_probability 0.25, .* the run has 0.0"),
        ([str(catch), "--protocol", "saber"], "saber is a protocol of suite atari, not of catch"),
        ([one, "--protocol", "saber", "--env.noop_max", "3"], "env.noop_max is set by protocol saber"),
        ([one, "--protocol", "laser-atari", "--episodes", "3"], "--episodes cannot be used with laser-atari"),
        ([one, "--protocol", "laser-atari", "--env.noop_max", "3"], "--env.noop_max cannot be used with laser-atari"),
        ([one, "--protocol", "laser-atari"], "cannot read .*metrics.jsonl"),
        ([one, str(catch)], "play the same suite: .*full plays atari, .*catch plays catch"),
        ([one, other, one], "all tasks need equally many runs: pong has 2, breakout has 1"),
        ([one, other], "same environments: env.action_set is full in .*full, minimal in .*minimal$"),
        ([one, str(sticky), "--env.action_repeat", "4"], "env.sticky_action_probability is 0.0 in .*full, 0.25 in .*sticky$"),
        ([one, other, "--checkpoint", one], "a checkpoint belongs to one run"),
        ([str(torn)], "torn.*model.safetensors"),
    ):
        assert main(["evaluate", *words]) == 2, words
        said = capsys.readouterr().err
        assert re.search(message, said), (words, said)
        assert len(said.splitlines()) == 1, said


def test_a_game_with_18_own_actions_fits_the_full_action_set(make_run: Callable[..., Path]) -> None:
    env = {**ATARI["env"], "tasks": ["alien"], "action_set": "minimal"}
    report = evaluate_runs([make_run({"env": env})], protocol="machado", episodes=1, environments=1)
    assert "env.action_repeat 4 (the paper: 5)" in report.protocol.differs_from_protocol
