"""Every run file that is shipped loads, names tasks that exist, and can be dumped and loaded again."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.config.loading import dump_settings, load_settings
from herd.envs.make import environment_spec

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


def test_the_shipped_files_are_found() -> None:
    names = {file.stem for file in EXPERIMENTS}
    assert {"catch", "breakout", "pong", "atari-shallow", "atari-deep", "atari-deep-lstm"} <= names


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_it_loads(file: Path, tmp_path: Path) -> None:
    settings = load_settings([file], [], {})
    assert settings.name == file.stem  # the run directory tells where it came from
    assert environment_spec(settings.env).task_names == settings.env.tasks
    assert settings.stop.env_frames is not None
    assert file.read_text().startswith("# ")
    again = tmp_path / "config.yaml"
    again.write_text(dump_settings(settings))
    assert load_settings([again], [], {}) == settings


@pytest.mark.parametrize("name", ["atari-shallow", "atari-deep"])
def test_the_papers_experts_have_table_g1(name: str) -> None:
    settings = load_settings([next(file for file in EXPERIMENTS if file.stem == name)], [], {})
    algorithm, optimizer, env = settings.algorithm, settings.optimizer, settings.env
    assert (algorithm.unroll_length, settings.learner.batch_size, algorithm.discount) == (20, 32, 0.99)
    assert (algorithm.baseline_cost, algorithm.entropy_cost, algorithm.reward_shaping, algorithm.loss_reduction) == (
        0.5,
        0.01,
        "clip",
        "sum",
    )
    assert (optimizer.learning_rate, optimizer.epsilon, optimizer.momentum, optimizer.max_gradient_norm) == (6e-4, 0.01, 0.0, 40.0)
    assert (optimizer.schedule, optimizer.schedule_env_frames, settings.stop.env_frames) == ("linear", 200_000_000, 200_000_000)
    assert (env.action_repeat, env.frame_stack, env.action_set, env.noop_max, env.life_loss_ends_episode) == (4, 4, "minimal", 30, True)
    assert settings.network.torso == {"atari-shallow": "nature", "atari-deep": "deep"}[name]
