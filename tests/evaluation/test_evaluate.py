import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from herd.acting.policy import LocalPolicy
from herd.checkpoints.weights import encode_weights
from herd.envs.make import make_environments
from herd.envs.scores import interquartile_mean, summarise
from herd.envs.suites.atari import atari_scores
from herd.evaluation import evaluate
from herd.evaluation.evaluate import evaluate_run
from herd.evaluation.play import Game, start_play
from herd.evaluation.report import EvaluationReport, print_report, summarise_tasks, task_result
from herd.evaluation.trained_run import EvaluationError, load_trained_run
from tests.acting.playing import make_group, play_unroll

CATCH = {
    "env": {"suite": "catch", "tasks": ["catch"], "frame_height": 6, "frame_width": 5, "frame_stack": 1, "action_repeat": 1},
    "network": {"torso": "mlp"},
}
BREAKOUT = {
    "env": {"tasks": ["breakout"], "frame_height": 42, "frame_width": 42},
    "network": {"core": "lstm", "core_size": 16, "last_action_and_reward": True},
}


def test_a_checkpoint_plays_in_evaluation_as_it_played_in_training(make_run: Callable[..., Path]) -> None:
    run = load_trained_run(make_run(BREAKOUT))
    settings, seed = run.settings, 11
    actor = LocalPolicy(run.agent, seed=seed, precision=torch.float32)
    group = make_group(settings, 3)
    trained = [play_unroll(settings, [group], actor) for _ in range(10)]

    mirrored = make_environments(settings.env, num_environments=3, first_slot=0, seed=3, num_threads=1)
    play = start_play(run, mirrored, seed=seed, greedy=False)
    for unroll in trained:
        for row in range(settings.algorithm.unroll_length):
            choice = play.step().choice
            np.testing.assert_array_equal(choice.behaviour_logits, unroll["behaviour_logits"][:, row], err_msg=f"row {row}")
            np.testing.assert_array_equal(choice.actions, unroll["actions"][:, row])
    # Lives were lost on the way, each of which resets the core.
    assert sum(int(unroll["terminated"].sum()) for unroll in trained) >= 3
    group.environments.close()
    mirrored.close()


def test_a_run_is_scored_and_the_file_says_how(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(CATCH)
    told: list[tuple[int, int]] = []
    report = evaluate_run(run_dir, episodes=45, seed=3, on_progress=lambda *now: told.append(now))
    written = json.loads((run_dir / "evaluation-250.json").read_text())
    (task,) = report.tasks
    assert (task.episodes, len(task.episode_returns), told[-1]) == (45, 45, (45, 45))
    assert set(task.episode_returns) == {-1.0, 1.0}
    assert written["tasks"][0]["mean"] == pytest.approx(np.mean(task.episode_returns))
    assert written["tasks"][0]["mean_interval_95"] == list(task.mean_interval_95)
    assert task.mean_env_frames == 5.0
    assert (written["learner_updates"], written["env_frames"], written["checkpoint"]) == (250, 160_000, "000000000250")
    protocol = written["protocol"]
    assert (protocol["episodes_per_task"], protocol["seed"], protocol["policy"]) == (45, 3, "sampled")
    assert protocol["differs_from_training"] == []
    assert "in advance" in protocol["episode_selection"]
    assert written["summary"] is None


def test_the_seed_decides_everything(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(CATCH)
    first, again, other = (evaluate_run(run_dir, episodes=40, seed=seed).tasks[0].episode_returns for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_overrides_change_the_games_and_are_named(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    def spy(env: object, **arguments: object) -> object:
        played.append(env)
        return make_environments(env, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluate, "make_environments", spy)
    run_dir = make_run(BREAKOUT)
    overrides = ["--env.noop_max", "5", "--env.sticky_action_probability", "0.25", "--env.max_episode_frames", "200"]
    report = evaluate_run(run_dir, episodes=2, overrides=overrides, environments=1, greedy=True)
    (env,) = played
    assert (env.noop_max, env.sticky_action_probability, env.max_episode_frames, env.frame_height) == (5, 0.25, 200, 42)
    assert report.protocol.differs_from_training == ("noop_max", "sticky_action_probability", "max_episode_frames")
    assert (report.protocol.policy, report.protocol.environments) == ("greedy", 1)
    (task,) = report.tasks
    assert task.truncated_episodes == 2
    assert task.mean_env_frames <= 204
    reference = atari_scores()["breakout"]
    assert task.human_normalised == pytest.approx((task.mean - reference.random) / (reference.human - reference.random))


@pytest.mark.parametrize(
    ("requested", "episodes", "tasks", "expected"),
    [(None, 200, 1, 29), (None, 3, 1, 3), (None, 200, 57, 57), (None, 10, 2, 20), (8, 200, 2, 8), (64, 10, 1, 10)],
)
def test_environments_are_a_multiple_of_the_tasks(requested: int | None, episodes: int, tasks: int, expected: int) -> None:
    assert evaluate._num_environments(requested, episodes=episodes, num_tasks=tasks) == expected


def test_what_cannot_be_evaluated_is_said_in_one_line(make_run: Callable[..., Path], tmp_path: Path) -> None:
    good = make_run(CATCH)
    bare = tmp_path / "bare"
    bare.mkdir()
    young = make_run(CATCH, name="young")
    for path in (young / "checkpoints").rglob("*.*"):
        path.unlink()
    (young / "checkpoints" / "000000000250").rmdir()
    foreign = make_run(CATCH, name="foreign")
    config = foreign / "config.yaml"
    config.write_text(config.read_text().replace("frame_height: 6", "frame_height: 7"))
    broken = make_run(CATCH, name="broken")
    (broken / "config.yaml").write_text("env:\n  suit: catch\n")
    for arguments, message in (
        ({"run_dir": tmp_path / "absent"}, "no such run directory"),
        ({"run_dir": bare}, "holds no config.yaml"),
        ({"run_dir": young}, "holds no checkpoint"),
        ({"run_dir": foreign}, "another network"),
        ({"run_dir": broken}, "env.suit: no such setting"),
        ({"run_dir": good, "checkpoint": tmp_path / "nothing"}, "missing"),
        ({"run_dir": good, "overrides": ["--env.max_episode_frames", "0"]}, "env.max_episode_frames: .* not '0'"),
        ({"run_dir": good, "overrides": ["--env.noop_max", "5"]}, "env.noop_max: does not apply to env.suite catch; env.suite atari has"),
        ({"run_dir": good, "overrides": ["--env.frame_height", "7"]}, "--env.frame_height 7: the policy was trained on other observations"),
        ({"run_dir": good, "overrides": ["--seed", "7"]}, "--seed: only settings of env"),
        ({"run_dir": good, "episodes": 0}, "episodes must be at least 1"),
        ({"run_dir": good, "seed": -1}, "seed must be at least 0"),
        ({"run_dir": good, "environments": 0}, "positive multiple"),
    ):
        with pytest.raises(EvaluationError, match=message) as caught:
            evaluate_run(**arguments)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


def damaged(run: Path, **contents: bytes) -> None:
    """Put other contents into the run's checkpoint, under the digests that they have."""
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
        ({"model": len(STRIDES).to_bytes(8, "little") + STRIDES}, "more elements than a tensor can"),
        ({"model": b""}, "no header fits"),
        ({"state": b"[" * 100_000}, "nested too deeply"),
        ({"state": b"9" * 5000}, "digits"),
        ({"state": b"[]"}, "holds no mapping"),
        ({"value_statistics": encode_weights({"shift": torch.zeros(7)})}, "does not fit"),
    ],
)
def test_a_hostile_checkpoint_is_said_in_one_line(make_run: Callable[..., Path], contents: dict[str, bytes], says: str) -> None:
    run = make_run(CATCH | {"value_scaling": {"kind": "popart"}})
    damaged(run, **contents)
    with pytest.raises(EvaluationError, match=says) as caught:
        evaluate_run(run, episodes=1)
    assert "\n" not in str(caught.value)


def test_odd_statistics_are_no_obstacle(make_run: Callable[..., Path]) -> None:
    run = make_run(CATCH)
    damaged(run, state=b'{"statistics": ["odd"]}')
    assert load_trained_run(run).env_frames is None


def test_an_older_checkpoint_can_be_named(make_run: Callable[..., Path]) -> None:
    make_run(CATCH, updates=100)
    run_dir = make_run(CATCH, updates=250)
    assert load_trained_run(run_dir).learner_updates == 250
    assert load_trained_run(run_dir, run_dir / "checkpoints" / "000000000100").learner_updates == 100


def result_of(task: str, returns: list[float]) -> object:
    return task_result(task, [Game(0, score, 10, False) for score in returns], suite="atari", action_repeat=4, seed=0)


def test_a_tasks_numbers_are_those_of_its_games() -> None:
    task = task_result(
        "pong", [Game(0, score, 10 * n, n == 2) for n, score in enumerate([-21.0, 0.0, 12.0, 21.0])], suite="atari", action_repeat=4, seed=0
    )
    assert (task.mean, task.median, task.lowest, task.highest) == (3.0, 6.0, -21.0, 21.0)
    assert task.standard_error == pytest.approx(np.std([-21, 0, 12, 21], ddof=1) / 2)
    assert (task.mean_env_frames, task.truncated_episodes) == (60.0, 1)
    assert task_result("pong", [Game(0, 1.0, 1, False)], suite="atari", action_repeat=4, seed=0).standard_error is None
    assert task_result("catch", [Game(0, 1.0, 1, False)], suite="catch", action_repeat=1, seed=0).human_normalised is None


def test_several_games_are_summed_up_as_the_score_tables_do() -> None:
    means = {"pong": 10.0, "breakout": 300.0, "seaquest": 900.0, "qbert": 14_000.0, "alien": 500.0}
    tasks = [result_of(name, [mean - 1, mean + 1, mean]) for name, mean in means.items()]
    summary = summarise_tasks(tasks, suite="atari", seed=0)  # type: ignore[arg-type]
    expected = summarise(means, atari_scores())
    assert summary is not None
    assert (summary.mean, summary.median, summary.mean_capped) == pytest.approx((expected.mean, expected.median, expected.mean_capped))
    assert summary.interquartile_mean == pytest.approx(interquartile_mean([task.human_normalised for task in tasks]))  # type: ignore[attr-defined]
    for low, high, point in (
        (*summary.mean_interval_95, summary.mean),
        (*summary.median_interval_95, summary.median),
        (*summary.mean_capped_interval_95, summary.mean_capped),
    ):
        assert low < point < high
    assert summary.mean_capped_interval_95[1] < summary.mean_interval_95[0]  # breakout's 10x is capped in every resample
    assert summarise_tasks(tasks[:1], suite="atari", seed=0) is None  # type: ignore[arg-type]


def printed(report: EvaluationReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_report(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_table_shows_score_and_protocol(make_run: Callable[..., Path]) -> None:
    report = evaluate_run(make_run(CATCH), episodes=10, overrides=["--env.max_episode_frames", "4"])
    text = printed(report)
    assert "run after 250 updates, 160,000 env frames" in text
    assert "catch" in text
    assert f"{report.tasks[0].mean:.2f}" in text
    assert "10 games ran into the cap" in text
    assert "differs from training in max_episode_frames" in text


@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date:DeprecationWarning")
def test_a_policy_that_sees_numbers_is_scored_and_may_be_given_other_tasks(make_run: Callable[..., Path]) -> None:
    run_dir = make_run({"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}})
    (task,) = evaluate_run(run_dir, episodes=4, overrides=["--env.max_episode_steps", "3"]).tasks
    assert (task.task_name, task.mean, task.truncated_episodes) == ("CartPole-v1", 3.0, 4)
    report = evaluate_run(run_dir, episodes=2, overrides=["--env.tasks", "CartPole-v0"])
    assert (report.tasks[0].task_name, report.protocol.differs_from_training) == ("CartPole-v0", ("tasks",))
