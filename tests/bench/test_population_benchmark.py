"""How the comparison of a population with its control evaluates the curves of two runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.population import compare, measure


def _run(directory: Path, returns: dict[int, list[float]]) -> Path:
    """Write a run whose members have these returns at 100, 200, ... env frames."""
    for agent, values in returns.items():
        own = directory / "agents" / str(agent)
        own.mkdir(parents=True)
        points = [
            {"env_frames": 100 * number, "wall_seconds": number, "learner_updates": number, "episode_return_mean_100": value}
            for number, value in enumerate(values, start=1)
        ]
        (own / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    (directory / "config.yaml").write_text("name: run\nseed: 1\nenv: {suite: catch, tasks: [catch]}\n")
    return directory


def test_the_best_is_chosen_per_window_and_differences_are_paired(tmp_path: Path) -> None:
    measured: dict[str, list[dict[str, float]]] = {"pbt": [], "none": []}
    for seed, gain in enumerate((0.25, 0.5, 0.75)):
        for strategy, more in (("pbt", gain), ("none", 0.0)):
            # Member 0 is better in the first half of thirty windows, member 1 in the second half.
            curves = {0: [1.0 + more] * 15 + [2.0 + more] * 15, 1: [0.0 + more] * 15 + [4.0 + more] * 15}
            measured[strategy].append(measure(_run(tmp_path / f"{strategy}-{seed}", curves), 3000.0))
    assert measured["none"][0] == pytest.approx(
        {"final of the best": 4.0, "whole run of the best": 2.5, "final of all": 3.0, "whole run of all": 1.75}
    )
    found = compare(measured)
    for row in found.values():
        assert row["difference"].mean == pytest.approx(0.5)
        assert 0.25 <= row["difference"].low < 0.5 < row["difference"].high <= 0.75
        assert row["pbt"].mean - row["none"].mean == pytest.approx(0.5)
