"""A checkpoint of another run, network or environment is refused, and the error names the differences."""

from __future__ import annotations

import json

import pytest

from herd.components.suites import environment_spec
from herd.config.loading import load_settings
from herd.config.run_contract import Origin


def origin(*words: str) -> Origin:
    settings = load_settings([], ["--name", "mine", *words], {})
    return Origin.of(settings, environment_spec(settings.env))


def state_of(*words: str) -> dict[str, object]:
    state: dict[str, object] = json.loads(json.dumps({**origin(*words).as_json(), "lineage": 3}))
    return state


@pytest.mark.parametrize("words", [[], ["--learner.batch_size", "64"], ["--env.noop_max", "7"], ["--algorithm.discount", "0.9"]])
def test_learner_only_settings_do_not_refuse_a_checkpoint(words: list[str]) -> None:
    assert origin().objection(state_of(*words)) is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--network.core", "lstm"], "network.core lstm, here none"),
        (["--env.frame_stack", "1", "--env.noop_max", "7"], "env.frame_stack 1, here 4"),
        (["--algorithm.unroll_length", "7"], "algorithm.unroll_length 7, here 20"),
        (
            ["--env.grayscale", "false", "--network.width_multiplier", "7"],
            "env.grayscale False, here True; network.width_multiplier 7, here 1",
        ),
    ],
)
def test_only_the_settings_that_differ_are_named(words: list[str], named: str) -> None:
    assert origin().objection(state_of(*words)) == f"made by another network or environment ({named})"


def test_a_checkpoint_of_another_run_names_both_runs() -> None:
    assert origin().objection(state_of("--name", "theirs")) == "made by another run (name theirs, here mine)"


def test_without_recorded_settings_the_digests_are_named() -> None:
    state = state_of("--network.core", "lstm")
    theirs, ours = str(state["contract"])[:12], origin().contract[:12]
    for unknown in ({}, {"contract_settings": None}, {"contract_settings": {"network.core": "none"}}):
        objection = origin().objection({"contract": state["contract"], **unknown})
        assert objection == f"made by another network or environment (contract {theirs}, here {ours})"


def test_a_state_without_contract_is_foreign() -> None:
    assert "contract None" in (origin().objection({}) or "")
