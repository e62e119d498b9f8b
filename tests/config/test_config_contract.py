from __future__ import annotations

import pytest

from herd.config.loading import load_settings
from herd.config.run_contract import contract_digest
from herd.contract.spaces import EnvSpec

SPEC = EnvSpec(task_names=("pong",), frame_shape=(84, 84, 1), frame_stack=4, num_actions=6, action_repeat=4, instruction_length=0)


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


@pytest.mark.parametrize("words", [["--learner.batch_size", "64"], ["--optimizer.learning_rate", "0.1"], ["--seed", "5"]])
def test_learner_only_settings_do_not_change_the_digest(words: list[str]) -> None:
    assert contract_digest(load_settings([], words, {}), SPEC) == contract_digest(load_settings([], [], {}), SPEC)
