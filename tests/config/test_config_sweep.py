"""One run with several agents, each with another combination of values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from math import log
from pathlib import Path
from typing import Any

import pytest

from herd.components.losses.impala import ImpalaSettings
from herd.components.suites import environment_spec
from herd.config.loading import SettingsError, dump_settings, load_settings
from herd.config.run import RunSettings
from herd.config.run_contract import contract_digest
from herd.config.sweep import swept_values

RATES, COSTS = [3e-4, 6e-4, 1.2e-3], [5e-3, 1e-2, 2e-2]
SWEEP: dict[str, object] = {"optimizer.learning_rate": RATES, "loss.entropy_cost": COSTS}


def _load(sweep: Mapping[str, object], agents: int, *words: str) -> RunSettings:
    return load_settings([], ["--sweep", json.dumps(sweep), "--agents", str(agents), *words], {})


def test_agents_get_the_combinations_in_order() -> None:
    settings = _load(SWEEP, 9)
    found = []
    for agent in range(9):
        own = settings.of_agent(agent)
        assert isinstance(own.loss, ImpalaSettings)
        found.append((own.optimizer.learning_rate, own.loss.entropy_cost))
        assert own.seed == settings.seed + agent
        assert own.env == settings.env
    assert found == list(product(RATES, COSTS))


def test_without_a_sweep_agents_differ_only_in_their_seeds() -> None:
    settings = load_settings([], ["--agents", "3"], {})
    assert settings.of_agent(2) == settings.model_copy(update={"seed": settings.seed + 2})


def test_swept_values_do_not_change_the_contract() -> None:
    """All agents of a run have the same contract."""
    settings = _load({**SWEEP, "loss.trust_region": ["none"]}, 9)
    spec = environment_spec(settings.env)
    assert {contract_digest(settings.of_agent(agent), spec) for agent in range(9)} == {contract_digest(settings, spec)}


def test_a_sweep_can_be_loaded_dumped_and_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("agents: 2\nsweep:\n  loss.trust_region: [none, implied]\n")
    settings = load_settings([file], [], {})
    losses = [settings.of_agent(agent).loss for agent in (0, 1)]
    assert [loss.trust_region for loss in losses if isinstance(loss, ImpalaSettings)] == ["none", "implied"]
    file.write_text(dump_settings(settings))
    assert load_settings([file], [], {}) == settings


DRAWS = {
    "loss.entropy_cost": {"draw": "log_uniform", "low": 5e-5, "high": 1e-2},
    "optimizer.learning_rate": {"draw": "log_uniform", "low": 5e-6, "high": 5e-3},
    "optimizer.epsilon": {"draw": "choice", "values": [1e-1, 1e-3, 1e-5, 1e-7]},
    "optimizer.max_gradient_norm": {"draw": "uniform", "low": 10.0, "high": 100.0},
}
"""Ranges of IMPALA's Table D.1 and PopArt's Table 9."""


def test_draws_follow_their_distributions() -> None:
    """Over 256 agents the means of uniform draws, or of their logarithms, are within five standard errors (0.29 of the range / 16)."""
    settings = _load(DRAWS, 256)
    values: list[Mapping[str, Any]] = [settings.of_agent(agent).own_values for agent in range(256)]
    ranges: dict[str, tuple[float, float, Callable[[float], float]]] = {
        "loss.entropy_cost": (5e-5, 1e-2, log),
        "optimizer.learning_rate": (5e-6, 5e-3, log),
    }
    for key, (low, high, scale) in {**ranges, "optimizer.max_gradient_norm": (10.0, 100.0, float)}.items():
        found = [(scale(each[key]) - scale(low)) / (scale(high) - scale(low)) for each in values]
        assert all(0.0 <= place <= 1.0 for place in found)
        assert abs(sum(found) / 256 - 0.5) < 5 * 0.29 / 16
        assert min(found) < 0.05
        assert max(found) > 0.95
        assert len(set(found)) == 256
    choices = Counter(each["optimizer.epsilon"] for each in values)
    assert set(choices) == {1e-1, 1e-3, 1e-5, 1e-7}
    assert all(abs(count - 64) < 5 * 7 for count in choices.values())  # standard deviation 6.9


def test_a_draw_depends_only_on_seed_agent_and_key() -> None:
    few = {"optimizer.learning_rate": DRAWS["optimizer.learning_rate"]}
    assert _load(few, 2).of_agent(1).own_values.items() <= _load(DRAWS, 24).of_agent(1).own_values.items()
    values = {_load(few, 2, "--seed", str(seed)).of_agent(agent).optimizer.learning_rate for seed in (1, 2) for agent in (0, 1)}
    assert len(values) == 4


def test_exponents_without_a_decimal_point_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("agents: 2\nsweep:\n  optimizer.epsilon: {draw: choice, values: [1e-7]}\n  loss.entropy_cost: [1e-3, 1E-2]\n")
    settings = load_settings([file], [], {})
    assert settings.sweep["loss.entropy_cost"] == [1e-3, 1e-2]
    assert swept_values(settings.sweep, 1, settings.seed) == {"optimizer.epsilon": 1e-7, "loss.entropy_cost": 1e-2}


def test_lists_and_draws_can_be_combined() -> None:
    settings = _load({"loss.entropy_cost": [0.1, 0.2], "optimizer.learning_rate": DRAWS["optimizer.learning_rate"]}, 2)
    assert [settings.of_agent(agent).own_values["loss.entropy_cost"] for agent in (0, 1)] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("agents", "words", "said"),
    [
        (1, (), "needs agents of at least 2"),
        (2, ("--learner.compile", "default"), "needs learner.compile off"),
    ],
)
def test_an_invalid_population_is_refused_in_one_line(agents: int, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refusal:
        _load(DRAWS, agents, "--population.strategy", "pbt", *words)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("sweep", "agents", "said"),
    [
        (SWEEP, 8, "sweep has 9 combinations of values, but agents is 8"),
        ({"network.torso": ["deep"]}, 1, "network.torso must be the same for all agents"),
        ({"loss.kind": ["dice", "impala"]}, 2, "loss.kind must be the same for all agents"),
        ({"optimizer.learning_rate": [1e-3, -1.0]}, 2, "optimizer.learning_rate: should be greater than or equal to 0, not -1.0"),
        ({"loss.entropy_costs": [0.1, 0.2]}, 2, "no such setting of loss.kind impala; did you mean loss.entropy_cost?"),
        ({"optimizer.beta1": [0.1, 0.2]}, 2, "sweep: optimizer.beta1: no such setting of optimizer.kind rmsprop"),
        ({"loss.advantage_normalization": ["none", "batch"]}, 2, "needs learner.micro_batch_size null"),
        (
            {"loss.entropy_cost": {"draw": "log_uniform", "low": 1e-2, "high": 1e-3}},
            2,
            "sweep: loss.entropy_cost: low 0.01 must be below high 0.001, not",
        ),
        (
            {"loss.entropy_cost": {"draw": "log_uniform", "low": 0.0, "high": 1e-3}},
            2,
            "sweep: loss.entropy_cost: should be greater than 0, not 0.0",
        ),
        (
            {"loss.entropy_cost": {"draw": "gauss"}},
            2,
            "sweep: loss.entropy_cost: 'draw' should be one of 'log_uniform', 'uniform', 'choice'",
        ),
        ({"loss.entropy_cost": {"draw": "choice", "values": [-1.0]}}, 2, "loss.entropy_cost"),
        ({"network.torso": {"draw": "choice", "values": ["deep"]}}, 2, "network.torso must be the same for all agents"),
        ({"loss.entropy_cost": []}, 1, "loss.entropy_cost has no values"),
        ({"loss.correction": ["v_trace", "none"]}, 2, "needs correction v_trace"),
    ],
)
def test_an_invalid_sweep_is_refused_in_one_line(sweep: dict[str, list[object]], agents: int, said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        _load(sweep, agents, "--loss.trust_region", "implied", "--learner.micro_batch_size", "8")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
