from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.components.losses.dice import DiceSettings
from herd.components.losses.impala import ImpalaSettings
from herd.components.optimizers.adamw import AdamWSettings
from herd.components.optimizers.rmsprop import RMSPropSettings
from herd.components.replay.local import LocalReplay
from herd.components.suites.atari import AtariSettings
from herd.config.loading import SettingsError, dump_settings, load_settings
from herd.config.run import RunSettings


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def refusal(files: list[Path], overrides: list[str], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(files, overrides, environ or {})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_later_sources_override_earlier_ones(tmp_path: Path) -> None:
    first = write(tmp_path, "learner: {batch_size: 40, queue_batches: 3}\nseed: 7\nactor: {count: 3}", "first.yaml")
    second = write(tmp_path, "learner: {batch_size: 41}\nenv: {tasks: [pong]}", "second.yaml")
    environ = {"HERD_LEARNER__BATCH_SIZE": "42", "HERD_ACTOR__COUNT": "4", "OTHER": "x"}

    assert load_settings([first], [], {}).learner.batch_size == 40
    assert load_settings([first, second], [], {}).learner.batch_size == 41
    assert load_settings([second, first], [], {}).learner.batch_size == 40
    assert load_settings([first, second], [], environ).learner.batch_size == 42
    settings = load_settings([first, second], ["--learner.batch_size", "43"], environ)
    assert settings.learner.batch_size == 43
    # The other values of the weaker sources are kept: sections are merged, not replaced.
    assert (settings.learner.queue_batches, settings.seed, settings.actor.count, settings.env.tasks) == (3, 7, 4, ("pong",))


def test_another_kind_resets_its_section_to_defaults(tmp_path: Path) -> None:
    """RMSProp's epsilon must not become AdamW's."""
    file = write(tmp_path, "optimizer: {learning_rate: 0.5, epsilon: 0.1, decay: 0.9}\nloss: {entropy_cost: 0.2}")
    optimizer = load_settings([file], ["--optimizer.kind", "adamw", "--optimizer.beta1", "0.5"], {}).optimizer
    assert optimizer == AdamWSettings(beta1=0.5)
    same = load_settings([file], ["--optimizer.kind", "rmsprop", "--loss.kind", "impala"], {})
    assert same.optimizer == RMSPropSettings(learning_rate=0.5, epsilon=0.1, decay=0.9)
    assert same.loss == ImpalaSettings(entropy_cost=0.2)
    third = write(tmp_path, "loss: {kind: dice, q_cost: 3}", "third.yaml")
    assert load_settings([file, third], ["--loss.policy_cost", "2"], {}).loss == DiceSettings(q_cost=3, policy_cost=2)
    # The name of a variant stands for the whole section.
    named = write(tmp_path, "optimizer: adamw\nloss: dice", "named.yaml")
    both = load_settings([file, named], ["--auxiliary", "pixel_control"], {})
    assert (both.optimizer, both.loss, both.auxiliary.kind) == (AdamWSettings(), DiceSettings(), "pixel_control")
    # Within one source, a key that does not fit the variant is an error.
    assert "does not apply to optimizer.kind adamw" in refusal([file], ["--optimizer.kind", "adamw", "--optimizer.decay", "0.9"])


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (["--env.tasks", "pong"], ("pong",)),
        (["--env.tasks=pong,breakout"], ("pong", "breakout")),
        (["--env.tasks", '["pong", "qbert"]'], ("pong", "qbert")),
        (["--env.tasks", "pong", "--env.tasks", "qbert,breakout"], ("pong", "qbert", "breakout")),
    ],
)
def test_lists_can_be_given_on_the_command_line(words: list[str], tasks: tuple[str, ...]) -> None:
    assert load_settings([], [*words, "--env.action_set", "full"], {}).env.tasks == tasks


def test_scalars_can_be_given_on_the_command_line(tmp_path: Path) -> None:
    file = write(tmp_path, "stop: {env_frames: 2e6, wall_seconds: 5}\noptimizer: {learning_rate: 6e-4}\nname: null-ish")
    settings = load_settings([file], ["--resume", "--stop.wall_seconds", "null", "--env.max_pool", "false", "--seed=1", "--seed=3"], {})
    assert settings.resume is True
    assert isinstance(settings.env, AtariSettings)
    assert settings.env.max_pool is False
    assert settings.stop.env_frames == 2_000_000
    assert settings.stop.wall_seconds is None
    assert settings.optimizer.learning_rate == 6e-4
    assert settings.seed == 3
    assert load_settings([], ["--resume", "--seed", "9"], {}).seed == 9


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("batch_size: 64", ["batch_size", "did you mean learner.batch_size?"]),
        ("learner: {batch_size: true}", ["learner.batch_size", "true", "run.yaml"]),
        ("learner: {batch_size: {a: 1}}", ["learner.batch_size", "run.yaml"]),
        ("env: {tasks: pong}", ["env.tasks", "list of strings", "'pong'"]),
        ("loss: {clip_c_threshold: 3}", ["clip_c_threshold", "clip_rho_threshold: default", "run.yaml"]),
        ("loss: {kind: dice, q_cost: many}", ["loss.q_cost: should be number >= 0, not 'many'", "run.yaml"]),
        ("env: {suite: catch, noop_max: 3}", ["env.noop_max: does not apply to env.suite catch", "env.suite: ", "run.yaml"]),
        ("replay_service: {port: 1}", ["replay_service.port: no such setting", "run.yaml", "did you mean placement.ports?"]),
        ("{action: {kind: categorical, uniform_share: 0.01}, loss: {kind: dice}}", ["action.uniform_share", "loss.kind", "run.yaml"]),
        ("action: {kind: categorical, uniform_share: 1}", ["action.uniform_share: should be number >= 0 and < 1", "run.yaml"]),
        ("action: {uniform_share: 0.01}", ["action.uniform_share: does not apply to action.kind auto", "run.yaml"]),
        ("actor: {environments: 999}", ["actor.environments: ", "run.yaml", "learner.queue_batches: default"]),
    ],
)
def test_errors_in_a_file_give_one_line_with_key_and_position(tmp_path: Path, text: str, parts: list[str]) -> None:
    """tests/cli/bad_inputs.yaml has more of these."""
    message = refusal([write(tmp_path, text)], [])
    for part in parts:
        assert part in message


def test_an_invalid_value_is_reported_even_if_overridden(tmp_path: Path) -> None:
    first, second = write(tmp_path, "learner: 3", "first.yaml"), write(tmp_path, "learner: {batch_size: 4}", "second.yaml")
    assert "first.yaml" in refusal([first, second], [])


@given(
    seed=st.integers(0, 2**62),
    learning_rate=st.floats(0, 1e3),
    tasks=st.lists(st.sampled_from(["pong", "null", "true", "1", "no"]), min_size=1, max_size=4, unique=True),
    norm=st.none() | st.floats(1e-9, 1e9),
    run_dir=st.none() | st.sampled_from(["runs/a b", "runs/ü", "null"]),
)
def test_dumped_settings_load_to_equal_settings(
    tmp_path_factory: pytest.TempPathFactory, seed: int, learning_rate: float, tasks: list[str], norm: float | None, run_dir: str | None
) -> None:
    settings = RunSettings.model_validate(
        {
            "seed": seed,
            "env": {"tasks": tasks, "action_set": "full"},
            "optimizer": {"learning_rate": learning_rate, "max_gradient_norm": norm},
            "run_dir": run_dir,
        }
    )
    file = tmp_path_factory.mktemp("dump") / "config.yaml"
    file.write_text(dump_settings(settings), encoding="utf-8")
    assert load_settings([file], [], {}) == settings


def test_constraints_between_sections_are_checked() -> None:
    settings = load_settings([], ["--replay.kind", "local", "--replay.fraction", "0.5", "--learner.queue_batches", "9"], {})
    assert isinstance(settings.replay, LocalReplay)
    assert settings.num_replayed_unrolls == 16
    for fraction, complaint in (("0.99", "needs at least one online unroll"), ("0.01", "not a whole number of unrolls")):
        message = refusal([], ["--replay.kind", "local", "--replay.fraction", fraction])
        assert "replay.fraction" in message
        assert complaint in message
    assert "minimum_fill_unrolls 1000" in refusal([], ["--replay.kind", "local", "--replay.capacity_unrolls", "999"])


def test_replayed_statistics_require_replay() -> None:
    words = ["--value_scaling.kind", "popart", "--value_scaling.replayed", "true"]
    assert "value_scaling.replayed needs a replay.kind other than none" in refusal([], words)
    load_settings([], [*words, "--replay.kind", "local", "--learner.queue_batches", "9"], {})


def test_a_replay_setting_without_a_kind_names_the_kinds_that_have_it() -> None:
    """Files from before replay had kinds look like this."""
    message = refusal([], ["--replay.fraction", "0.5"])
    assert "replay.fraction: does not apply to replay.kind none; replay.kind local or shared has it" in message
    assert "replay.kind local has it" in refusal([], ["--replay.kind", "shared", "--replay.capacity_unrolls", "5"])
