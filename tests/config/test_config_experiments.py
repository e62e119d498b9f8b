"""Every shipped run file loads, names tasks that exist, and can be dumped and loaded again."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from herd.components.suites import environment_spec
from herd.config.loading import SettingsError, dump_settings, load_settings
from herd.config.run import RunSettings
from herd.config.sweep import Choice, LogUniform

SUITES = Path(__file__).parents[2] / "herd" / "components" / "suites"
EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_shipped_experiments_load_and_dump_unchanged(file: Path, tmp_path: Path) -> None:
    settings = load_settings([file], [], {})
    assert settings.name == file.stem  # the name of the run directory shows which file it came from
    assert environment_spec(settings.env).task_names == settings.env.tasks
    assert settings.stop.env_frames is not None
    assert file.read_text().startswith("# ")
    again = tmp_path / "config.yaml"
    again.write_text(dump_settings(settings))
    assert load_settings([again], [], {}) == settings


def test_the_page_of_experiments_lists_each_with_a_link_to_its_file() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    for file in EXPERIMENTS:
        assert f"[`{file.stem}`](../herd/experiments/{file.name})" in page


IMPALA: dict[str, object] = {
    "loss.reduction": "sum",  # Table D.1
    "algorithm.discount": 0.99,
    "loss.baseline_cost": 0.5,
    "optimizer.kind": "rmsprop",
    "optimizer.momentum": 0.0,
    "learner.batch_size": 32,
    "network.torso.kind": "deep",
    "network.width_multiplier": 1,
    "network.initialization": "truncated_normal",  # of the authors' code
    "network.input_centering": "none",
    "network.layer_norm": False,
}
"""What IMPALA's Tables D.3 and G.1 and PopArt's Tables 6 and 7 have in common (arXiv:1802.01561, arXiv:1809.04474)."""
ATARI: dict[str, object] = {
    "env.frame_width": 84,
    "env.frame_height": 84,
    "env.grayscale": True,
    "env.action_repeat": 4,
    "env.max_pool": True,
    "env.frame_stack": 4,
    "env.life_loss_ends_episode": True,
}
"""Pre-processing: IMPALA's Table G.1, PopArt's Table 5."""
EXPERTS: dict[str, object] = {
    **IMPALA,
    **ATARI,
    "env.action_set": "minimal",
    "env.noop_max": 30,
    "network.core.kind": "none",
    "algorithm.reward_shaping": "clip",
    "algorithm.unroll_length": 20,
    "loss.entropy_cost": 0.01,
    "optimizer.epsilon": 0.01,
    "optimizer.learning_rate": 6e-4,
    "optimizer.max_gradient_norm": 40.0,
    "optimizer.schedule": "linear",
    "optimizer.schedule_env_frames": 200_000_000,
    "stop.env_frames": 200_000_000,
}
"""IMPALA's Table G.1."""
ATARI57: dict[str, object] = {
    **EXPERTS,
    "env.tasks": tuple(row.split(",")[0] for row in (SUITES / "atari" / "scores.csv").read_text().splitlines()[1:]),
    "env.action_set": "full",
    "optimizer.schedule_env_frames": 57 * 200_000_000,  # section 5.3.2
    "stop.env_frames": 57 * 200_000_000,
    "actor.environments": 57,
}
POPART: dict[str, object] = {
    "value_scaling.kind": "popart",
    "value_scaling.rate": 0.0003,
    "value_scaling.min_scale": 0.0001,
    "value_scaling.max_scale": 1e6,
    "value_scaling.second_moment": "unroll_means",
}
"""PopArt's Table 3; its equation 6 with the mean of an unroll."""
DMLAB30: dict[str, object] = {
    **IMPALA,
    "env.frame_width": 96,
    "env.frame_height": 72,
    "env.action_repeat": 4,
    "env.action_set": "popart",
    "network.core.kind": "lstm",
    "network.core.size": 256,
    "network.last_action_and_reward": True,
    "network.language": True,
    "algorithm.reward_shaping": "soft_asymmetric",
    "algorithm.unroll_length": 100,
    "optimizer.epsilon": 0.1,
    "actor.environments": 30,
    "stop.env_frames": 10_000_000_000,  # Fig. 5 of IMPALA, Fig. 4 of PopArt, Table 1 of LASER
}
"""IMPALA's Table D.3 and Fig. 3, PopArt's Tables 4, 6 and 7. The papers draw the optimizer's epsilon from values that include 0.1."""
PIXEL_CONTROL: dict[str, object] = {"auxiliary.kind": "pixel_control", "auxiliary.discount": 0.9, "auxiliary.cell_size": 4}
"""PopArt's appendix."""
LASER: dict[str, object] = {
    "loss.trust_region": "implied",
    "replay.kind": "shared",
    "replay.capacity_agent_steps": 10_000_000,
    "optimizer.max_gradient_norm": None,
}
"""Section 5 of arXiv:1909.11583."""
TABLES: dict[str, dict[str, object]] = {
    "atari-shallow": EXPERTS | {"network.torso.kind": "nature"},
    "atari-deep": EXPERTS,
    "impala-atari57-multitask": ATARI57 | {"value_scaling.kind": "none"},
    "popart-atari57": ATARI57 | POPART,
    "popart-atari57-unclipped": ATARI57 | POPART | {"algorithm.reward_shaping": "none"},
    "laser-atari": EXPERTS
    | LASER
    | {
        "env.noop_max": 37,
        "network.width_multiplier": 4,
        "algorithm.discount": 0.995,
        "algorithm.unroll_length": 19,
        "learner.batch_size": 32 + 128,
        "replay.fraction": 128 / (32 + 128),
    },
    "impala-dmlab30": DMLAB30 | {"env.action_set": "impala", "value_scaling.kind": "none", "auxiliary.kind": "none"},
    "popart-dmlab30": DMLAB30 | POPART | {"auxiliary.kind": "none"},
    "popart-dmlab30-pixelcontrol": DMLAB30 | POPART | PIXEL_CONTROL | {"stop.env_frames": 2_000_000_000},  # Fig. 7
    "laser-dmlab30": DMLAB30
    | POPART
    | PIXEL_CONTROL
    | LASER
    | {"algorithm.unroll_length": 79, "replay.fraction": 7 / 8, "learner.batch_size": 32 * 8},
    "pbt-dmlab30-popart": DMLAB30
    | POPART
    | {
        "agents": 8,  # PopArt's Table 8
        "sweep": {  # PopArt's Table 9
            "loss.entropy_cost": LogUniform(low=5e-5, high=1e-2),
            "optimizer.learning_rate": LogUniform(low=5e-6, high=5e-3),
            "optimizer.epsilon": Choice(values=(1e-1, 1e-3, 1e-5, 1e-7)),
        },
        # IMPALA's appendix F
        "population.fitness": "human_normalised",
        "population.fitness_episodes": 5_000,
        "population.burn_in_env_frames": 20_000_000,
        "population.threshold": 0.05,
        "population.perturb_probability": 0.33,
        "population.perturb_factor": 1.2,
    },
    "dice-atari": {  # Table 5 of arXiv:2106.00707
        **ATARI,
        "env.action_set": "full",
        "env.life_loss_ends_episode": False,
        "env.noop_max": 30,
        "stop.env_frames": 200_000_000,
        "learner.sample_reuse": 2,
        "actor.count": 160 // 32,
        "actor.environments": 32,
        "algorithm.reward_shaping": "log_asymmetric",
        "algorithm.burn_in": 40,
        "algorithm.unroll_length": 80,
        "algorithm.discount": 0.997,
        "learner.batch_size": 64,
        "loss.kind": "dice",
        "loss.ablation": "dice",
        "loss.baseline_cost": 1.0,
        "loss.q_cost": 10.0,
        "loss.policy_cost": 10.0,
        "loss.clip_c_threshold": 1.05,
        "loss.clip_rho_threshold": 1.05,
        "loss.clip_pg_rho_threshold": 1.05,
        "network.torso.kind": "deep",
        "network.core.kind": "lstm",
        "network.core.size": 256,
        "optimizer.kind": "adamw",
        "optimizer.weight_decay": 0.01,
        "optimizer.learning_rate": 5e-4,
        "optimizer.warmup_updates": 4000,
        "optimizer.schedule": "linear",
        "optimizer.schedule_updates": 200_000_000 * 2 // (4 * 64 * 80),  # to the end of the run
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.98,
        "optimizer.epsilon": 1e-6,
        "optimizer.max_gradient_norm": 50.0,
        "learner.publish_interval_updates": 25,
        "actor.pull_interval_steps": 64,
        "bandit.bandits": 7,
        "bandit.learning_rates": (0.05, 0.1, 0.2),
        "bandit.tile_widths": (1, 2, 3),
        "bandit.candidates": 7,
        "bandit.ucb_scale": 1.0,
        "bandit.min_inverse_temperature": 0.0,
        "bandit.max_inverse_temperature": 50.0,
    },
}
"""By experiment: settings that the papers print, by dotted key."""


def value_of(settings: RunSettings, key: str) -> Any:
    return reduce(getattr, key.split("."), settings)


@pytest.mark.parametrize("name", TABLES)
def test_experiments_match_the_papers_tables(name: str) -> None:
    settings = load_settings([Path(name)], [], {})
    assert {key: value_of(settings, key) for key in TABLES[name]} == TABLES[name]


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith(("dmlab30", "pixelcontrol"))])
def test_tuned_values_on_dmlab30_are_in_the_papers_ranges(name: str) -> None:
    settings = load_settings([Path(name)], [], {})
    assert len(settings.env.tasks) == 30
    assert 5e-5 <= value_of(settings, "loss.entropy_cost") <= 1e-2
    assert 5e-6 <= value_of(settings, "optimizer.learning_rate") <= 5e-3
    schedule = value_of(settings, "optimizer.schedule")
    assert schedule == "constant" or value_of(settings, "optimizer.schedule_env_frames") == settings.stop.env_frames


def test_the_ablation_decides_how_temperatures_are_drawn() -> None:
    dice = ["--loss.kind", "dice", "--loss.ablation"]
    found = {name: load_settings([], [*dice, name], {}) for name in ("dice", "baseline", "random", "entropy")}
    assert {name: (one.loss.draws_temperatures, one.loss.temperatures_learn) for name, one in found.items() if name != "baseline"} == {
        "dice": (True, True),
        "random": (True, False),
        "entropy": (True, True),
    }
    assert not found["baseline"].loss.draws_temperatures
    assert not load_settings([], [], {}).loss.draws_temperatures


def test_work_ahead_is_on_for_gpus_unless_policy_lag_is_bounded() -> None:
    found = {
        tuple(words): [load_settings([], words, {}).works_ahead(device) for device in ("cpu", "cuda")]
        for words in ([], ["--learner.work_ahead", "on"], ["--learner.work_ahead", "off"], ["--learner.max_policy_lag", "3"])
    }
    assert list(found.values()) == [[False, True], [True, True], [False, False], [False, False]]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--env.tasks", "atari57", "--env.action_set", "minimal"], "action_set must be full if tasks has several games"),
        (["--env.tasks", "pong,qbert,pong", "--env.action_set", "full"], "env.tasks: should name each task once"),
        (["--env.tasks", "atari57,pong", "--env.action_set", "full"], "env.tasks: should name each task once"),
        (
            ["--env.suite", "catch", "--network.torso", "mlp", "--env.reward_scales", "1,1"],
            "env.reward_scales: should be different factors",
        ),
        (["--algorithm.burn_in", "21", "--network.core", "lstm"], "must not exceed unroll_length 20"),
        (["--optimizer.kind", "adamw", "--optimizer.schedule_updates", "4000"], "must be below schedule_updates 4000"),
        (["--learner.work_ahead", "on", "--learner.max_policy_lag", "3"], "would be one update older"),
        (["--learner.work_ahead", "on", "--actor.lockstep", "true"], "would be one update older"),
    ],
)
def test_invalid_combinations_are_refused_with_a_reason(words: list[str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        load_settings([], words, {})


@pytest.mark.parametrize(
    ("section", "cause"),
    [
        ({}, r"actor\.count 2: actors race"),
        ({"actor": {"count": 1, "inference": "remote"}}, r"actor\.inference remote"),
        ({"actor": {"count": 1}, "learner": {"shards": 2}}, r"learner\.shards 2"),
        ({"actor": {"count": 1}, "loss": {"kind": "dice"}}, r"loss\.kind dice: the bandit"),
        ({"actor": {"count": 1}, "learner": {"queue_batches": 4}, "replay": {"kind": "shared", "fraction": 0.5}}, r"replay\.kind shared"),
    ],
)
def test_what_cannot_repeat_is_said(section: dict[str, Any], cause: str) -> None:
    settings = RunSettings.model_validate({"actor": {"count": 2}, **section})
    assert not settings.can_repeat
    with pytest.raises(ValueError, match=cause):
        RunSettings.model_validate({**settings.model_dump(), "deterministic": True})
