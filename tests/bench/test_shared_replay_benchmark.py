"""The comparison of agents that share a replay with the same agents alone: equal settings, and differences within pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.shared_replay import EXPERIMENTS, compare, name_of, twin, without_sweep
from herd.config.loading import load_settings


def test_a_twin_has_the_settings_of_its_agent(tmp_path: Path) -> None:
    shared = EXPERIMENTS / "laser-quick-shared.yaml"
    settings = load_settings([shared], ["--seed", "7", "--env.tasks", "breakout"], {})
    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump(without_sweep(yaml.safe_load(shared.read_text()))))
    for agent in range(settings.agents):
        own = settings.of_agent(agent)
        single = load_settings([alone], ["--env.tasks", "breakout", *twin(own)], {})
        expected = own.model_copy(update={"agents": 1, "sweep": {}, "actor": own.actor.model_copy(update={"count": own.actors_per_agent})})
        assert single == expected
    assert name_of(settings.of_agent(0)) == "optimizer.learning_rate 0.00025"


def test_gains_are_differences_within_pairs_of_each_agent_and_of_the_best() -> None:
    def pairs(shared: list[float], alone: list[float]) -> list[dict[str, dict[str, float]]]:
        return [
            {"shared": {"final": a, "whole run": 1.0}, "alone": {"final": b, "whole run": 1.0}} for a, b in zip(shared, alone, strict=True)
        ]

    found = compare({"slow": pairs([1.0, 5.0, 3.0], [0.0, 4.0, 1.0]), "fast": pairs([2.0, 2.0, 2.0], [3.0, 3.0, 3.0])})
    assert found["final, slow"]["gain"].mean == pytest.approx((1.0 + 1.0 + 2.0) / 3)
    assert (found["final, fast"]["gain"].low, found["final, fast"]["gain"].high) == (-1.0, -1.0)
    assert found["final, the best"]["shared"].mean == pytest.approx((2.0 + 5.0 + 3.0) / 3)
    assert found["final, the best"]["alone"].mean == pytest.approx((3.0 + 4.0 + 3.0) / 3)
    assert found["whole run, slow"]["gain"].mean == 0.0
