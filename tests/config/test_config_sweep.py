"""One run, several agents, another combination of values for each."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from herd.config.contract import contract_digest
from herd.config.loading import SettingsError, dump_settings, load_settings
from herd.config.losses import ImpalaSettings
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec

RATES, COSTS = [3e-4, 6e-4, 1.2e-3], [5e-3, 1e-2, 2e-2]
SWEEP = {"optimizer.learning_rate": RATES, "loss.entropy_cost": COSTS}


def _load(sweep: dict[str, list[object]], agents: int, *words: str) -> RunSettings:
    return load_settings([], ["--sweep", json.dumps(sweep), "--agents", str(agents), *words], {})


def test_agents_are_the_product_in_order() -> None:
    settings = _load(SWEEP, 9)
    found = []
    for agent in range(9):
        own = settings.of_agent(agent)
        assert isinstance(own.loss, ImpalaSettings)
        found.append((own.optimizer.learning_rate, own.loss.entropy_cost))
        assert own.seed == settings.seed + agent
        assert own.env == settings.env
    assert found == list(product(RATES, COSTS))


def test_without_a_sweep_agents_differ_in_their_seeds_alone() -> None:
    settings = load_settings([], ["--agents", "3"], {})
    assert settings.of_agent(2) == settings.model_copy(update={"seed": settings.seed + 2})


def test_actors_need_not_know_whose_values_they_act_for() -> None:
    """The contract of every agent is the run's."""
    settings = _load({**SWEEP, "loss.trust_region": ["none"]}, 9)
    spec = environment_spec(settings.env)
    assert {contract_digest(settings.of_agent(agent), spec) for agent in range(9)} == {contract_digest(settings, spec)}


def test_it_comes_from_a_file_and_goes_back_into_one(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("agents: 2\nsweep:\n  loss.trust_region: [none, implied]\n")
    settings = load_settings([file], [], {})
    assert [settings.of_agent(agent).loss.trust_region for agent in (0, 1)] == ["none", "implied"]
    file.write_text(dump_settings(settings))
    assert load_settings([file], [], {}) == settings


@pytest.mark.parametrize(
    ("sweep", "agents", "said"),
    [
        (SWEEP, 8, "sweep has 9 combinations of values, and agents is 8"),
        ({"network.torso": ["deep"]}, 1, "network.torso is the same for all agents"),
        ({"loss.kind": ["dice", "impala"]}, 2, "loss.kind is the same for all agents"),
        ({"optimizer.learning_rate": [1e-3, -1.0]}, 2, "optimizer.learning_rate"),
        ({"loss.entropy_costs": [0.1, 0.2]}, 2, "loss.entropy_costs"),
        ({"loss.entropy_cost": []}, 1, "loss.entropy_cost has no values"),
        ({"loss.correction": ["v_trace", "none"]}, 2, "needs correction v_trace"),
    ],
)
def test_what_agents_cannot_differ_in_is_refused_in_one_line(sweep: dict[str, list[object]], agents: int, said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        _load(sweep, agents, "--loss.trust_region", "implied")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
