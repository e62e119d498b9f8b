"""Every shipped run file loads, names tasks that exist, and can be dumped and loaded again."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.config.loading import SettingsError, dump_settings, load_settings
from herd.config.losses import DiceSettings, ImpalaSettings
from herd.config.optimizers import AdamWSettings, RMSPropSettings
from herd.config.value_scaling import PopArtSettings
from herd.envs.make import environment_spec
from herd.envs.suites.atari.settings import AtariSettings

SUITES = Path(__file__).parents[2] / "herd" / "envs" / "suites"
EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


def test_the_shipped_experiments_are_found() -> None:
    names = {file.stem for file in EXPERIMENTS}
    assert {
        "catch",
        "cartpole",
        "minigrid-empty",
        "breakout",
        "pong",
        "atari-shallow",
        "atari-deep",
        "atari-deep-lstm",
        "dice-atari",
        "dice-quick",
        "dice-catch",
        "dice-deceptive",
        "impala-atari57-multitask",
        "popart-atari57",
        "popart-atari57-unclipped",
        "atari-3games-quick",
        "atari-fast",
        "impala-dmlab30",
        "popart-dmlab30",
        "popart-dmlab30-pixelcontrol",
        "doom-multitask",
        "babyai-goto",
    } <= names


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


@pytest.mark.parametrize("name", ["atari-shallow", "atari-deep"])
def test_the_atari_experts_match_table_g1(name: str) -> None:
    settings = load_settings([next(file for file in EXPERIMENTS if file.stem == name)], [], {})
    algorithm, loss, optimizer, env = settings.algorithm, settings.loss, settings.optimizer, settings.env
    assert isinstance(loss, ImpalaSettings)
    assert isinstance(optimizer, RMSPropSettings)
    assert isinstance(env, AtariSettings)
    assert (algorithm.unroll_length, settings.learner.batch_size, algorithm.discount) == (20, 32, 0.99)
    assert (loss.baseline_cost, loss.entropy_cost, algorithm.reward_shaping, loss.reduction) == (
        0.5,
        0.01,
        "clip",
        "sum",
    )
    assert (optimizer.learning_rate, optimizer.epsilon, optimizer.momentum, optimizer.max_gradient_norm) == (6e-4, 0.01, 0.0, 40.0)
    assert (optimizer.schedule, optimizer.schedule_env_frames, settings.stop.env_frames) == ("linear", 200_000_000, 200_000_000)
    assert (env.action_repeat, env.frame_stack, env.action_set, env.noop_max, env.life_loss_ends_episode) == (4, 4, "minimal", 30, True)
    assert settings.network.torso == {"atari-shallow": "nature", "atari-deep": "deep"}[name]
    network = settings.network
    assert (network.initialization, network.input_centering, network.layer_norm) == ("truncated_normal", "none", False)


@pytest.mark.parametrize(
    ("name", "scaling", "shaping"),
    [
        ("impala-atari57-multitask", "none", "clip"),
        ("popart-atari57", "popart", "clip"),
        ("popart-atari57-unclipped", "popart", "none"),
    ],
)
def test_the_multitask_experiments_match_the_papers_tables(name: str, scaling: str, shaping: str) -> None:
    settings = load_settings([Path(name)], [], {})
    expert = load_settings([Path("atari-deep")], [], {})
    games = [row.split(",")[0] for row in (SUITES / "atari" / "scores.csv").read_text().splitlines()[1:]]
    assert (settings.env.tasks, len(games)) == (tuple(games), 57)
    assert (settings.value_scaling.kind, settings.algorithm.reward_shaping) == (scaling, shaping)
    # PopArt's Tables 5 to 7 and IMPALA's appendix G equal Table G.1 except for the actions and the 200 M frames of each game.
    assert settings.env.model_copy(update={"tasks": expert.env.tasks, "action_set": "minimal"}) == expert.env
    assert isinstance(settings.env, AtariSettings)
    assert settings.env.action_set == "full"
    frames = 57 * 200_000_000
    assert settings.optimizer == expert.optimizer.model_copy(update={"schedule_env_frames": frames})
    assert settings.stop.env_frames == frames
    assert (settings.network, settings.loss) == (expert.network, expert.loss)
    assert settings.algorithm == expert.algorithm.model_copy(update={"reward_shaping": shaping})
    assert settings.actor.environments % 57 == 0
    if scaling == "popart":
        assert isinstance(settings.value_scaling, PopArtSettings)
        assert (settings.value_scaling.rate, settings.value_scaling.min_scale, settings.value_scaling.max_scale) == (3e-4, 1e-4, 1e6)


def test_the_dice_atari_experiment_matches_table_5() -> None:
    settings = load_settings([next(file for file in EXPERIMENTS if file.stem == "dice-atari")], [], {})
    env, algorithm, loss = settings.env, settings.algorithm, settings.loss
    optimizer, bandit = settings.optimizer, settings.bandit
    assert isinstance(env, AtariSettings)
    assert isinstance(loss, DiceSettings)
    assert isinstance(optimizer, AdamWSettings)
    assert (env.frame_height, env.frame_width, env.grayscale, env.action_repeat, env.frame_stack) == (84, 84, True, 4, 4)
    assert (env.action_set, env.life_loss_ends_episode, env.noop_max, settings.stop.env_frames) == ("full", False, 30, 200_000_000)
    assert (settings.learner.sample_reuse, settings.actor.count * settings.actor.environments) == (2, 160)
    assert (algorithm.reward_shaping, algorithm.burn_in, algorithm.unroll_length, algorithm.discount) == ("log_asymmetric", 40, 80, 0.997)
    assert settings.learner.batch_size == 64
    assert (loss.baseline_cost, loss.q_cost, loss.policy_cost, loss.ablation) == (1.0, 10.0, 10.0, "dice")
    assert (loss.clip_c_threshold, loss.clip_rho_threshold, loss.clip_pg_rho_threshold) == (1.05, 1.05, 1.05)
    assert (settings.network.torso, settings.network.core, settings.network.core_size) == ("deep", "lstm", 256)
    assert (optimizer.kind, optimizer.weight_decay, optimizer.learning_rate, optimizer.warmup_updates) == ("adamw", 0.01, 5e-4, 4000)
    assert (optimizer.schedule, optimizer.beta1, optimizer.beta2, optimizer.epsilon) == ("linear", 0.9, 0.98, 1e-6)
    # The schedules end when the run ends.
    assert settings.stop.env_frames is not None
    assert optimizer.schedule_updates == settings.stop.env_frames * 2 // (4 * 64 * 80)
    assert (optimizer.max_gradient_norm, settings.learner.publish_interval_updates, settings.actor.pull_interval_steps) == (50.0, 25, 64)
    assert (bandit.bandits, bandit.learning_rates, bandit.tile_widths, bandit.candidates) == (7, (0.05, 0.1, 0.2), (1, 2, 3), 7)
    assert (bandit.ucb_scale, bandit.min_inverse_temperature, bandit.max_inverse_temperature) == (1.0, 0.0, 50.0)


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
        (["--actor.agent", "0"], "actor.agent and actor.index are leased together"),
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
