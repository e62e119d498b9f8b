from __future__ import annotations

from dataclasses import replace

import pytest

from herd.config.loading import load_settings
from herd.config.run import AlgorithmSettings, RunSettings
from herd.config.run_contract import contract_digest, learner_inputs
from herd.contract.spaces import EnvSpec, discrete

SPEC = EnvSpec(task_names=("pong",), frame_shape=(84, 84, 1), frame_stack=4, actions=discrete(6), action_repeat=4, instruction_length=0)


@pytest.mark.parametrize(
    "words",
    [
        ["--algorithm.unroll_length", "21"],
        ["--network.torso", "deep"],
        ["--algorithm.reward_shaping", "log_asymmetric"],
        ["--loss.kind", "dice"],
    ],
)
def test_settings_of_the_contract_change_the_digest(words: list[str]) -> None:
    assert contract_digest(load_settings([], words, {}), SPEC) != contract_digest(load_settings([], [], {}), SPEC)


def test_a_share_of_the_uniform_policy_changes_the_digest() -> None:
    without, given = ["--action.kind", "categorical"], ["--action.kind", "categorical", "--action.uniform_share", "0.01"]
    assert contract_digest(load_settings([], without, {}), SPEC) != contract_digest(load_settings([], given, {}), SPEC)


@pytest.mark.parametrize("words", [["--learner.batch_size", "64"], ["--optimizer.learning_rate", "0.1"], ["--seed", "5"]])
def test_learner_only_settings_do_not_change_the_digest(words: list[str]) -> None:
    assert contract_digest(load_settings([], words, {}), SPEC) == contract_digest(load_settings([], [], {}), SPEC)


@pytest.mark.parametrize(
    ("words", "shaping"),
    [
        ([], "clip"),
        (["--env.suite", "dmlab"], "clip"),
        (["--env.suite", "catch"], "none"),
        (["--env.suite", "gymnasium"], "none"),
        (["--env.suite", "vizdoom"], "none"),
        (["--algorithm.unroll_length", "7"], "clip"),
        (["--algorithm.reward_shaping", "none"], "none"),
        (["--env.suite", "gymnasium", "--algorithm.reward_shaping", "clip"], "clip"),
    ],
)
def test_rewards_are_clipped_only_in_suites_whose_papers_clip_them(words: list[str], shaping: str) -> None:
    settings = load_settings([], ["--network.torso", "mlp", *words], {})
    assert settings.algorithm.reward_shaping == shaping
    unset = RunSettings(env=settings.env, network=settings.network, algorithm=AlgorithmSettings(discount=0.9))
    assert (unset.algorithm.discount, unset.algorithm.reward_shaping) == (0.9, settings.env.reward_shaping)


def test_one_line_says_what_the_learner_trains_on() -> None:
    atari = ["--network.torso", "deep"]
    own = ["--env.suite", "gymnasium", "--network.torso", "mlp"]
    vector = replace(SPEC, frame_shape=(0, 0, 0), frame_stack=1, vector_size=36)
    for words, spec, said in [
        (atari, SPEC, "rewards: clipped to [-1, 1] · observation: picture 84x84x4, uint8, divided by 255 · actions: 6 discrete"),
        (
            [*atari, "--network.input_centering", "mean"],
            SPEC,
            "rewards: clipped to [-1, 1] · observation: picture 84x84x4, uint8, less their running mean, divided by their deviation "
            "· actions: 6 discrete",
        ),
        (own, vector, "rewards: as given · observation: vector of 36 numbers · actions: 6 discrete"),
        (
            [*own, "--network.torso", "mine:Torso", "--network.last_action_and_reward", "--algorithm.reward_shaping", "log_asymmetric"],
            replace(SPEC, vector_size=2),
            "rewards: shaped (log_asymmetric) · observation: picture 84x84x4, uint8 + vector of 2 numbers + last action + last reward "
            "clipped to [-1, 1] · actions: 6 discrete",
        ),
    ]:
        assert learner_inputs(load_settings([], words, {}), spec) == f"{said} · seed 1: two runs differ (actor.count 2: actors race)"
