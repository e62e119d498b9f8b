"""What the live view reports about a run's learning: a line just beyond each bound, and none just within it."""

from __future__ import annotations

from typing import Any

import pytest

from herd.view.health import health_warnings

HEALTHY: dict[str, Any] = {"update_kl": 0.01, "effective_sample_size": 0.9, "explained_variance": 0.8, "layers": []}


def layer(total: int, dead: int = 0, always_on: int = 0, kind: str = "filters") -> dict[str, Any]:
    return {"kind": kind, "total": total, "dead": dead, "always_on": always_on}


def of(updates: int = 5000, clipped: float | None = 0.1, **health: Any) -> tuple[str, ...]:
    return health_warnings({"learner_updates": updates, "clipped_share": clipped, "health": {**HEALTHY, **health}})


@pytest.mark.parametrize(
    ("beyond", "within", "line"),
    [
        ({"layers": [layer(16, dead=7)]}, {"layers": [layer(16, dead=4)]}, "7 of 16 filters of the first layer are never active"),
        (
            {"layers": [layer(16), layer(256, dead=193, kind="units")]},
            {"layers": [layer(16), layer(256, dead=192, kind="units")]},
            "193 of 256 units of layer 2 are never active",
        ),
        (
            {"layers": [layer(16, always_on=13)]},
            {"layers": [layer(16, always_on=12)]},
            "13 of 16 filters of the first layer are always active",
        ),
        ({"clipped": 0.94}, {"clipped": 0.9}, "94% of updates are clipped"),
        ({"effective_sample_size": 0.2}, {"effective_sample_size": 0.3}, "importance ratios reduce the effective samples to 20%"),
        ({"explained_variance": -0.25}, {"explained_variance": 0.0}, "values are worse than a constant (explained variance -0.25)"),
        ({"update_kl": 0.15}, {"update_kl": 0.1}, "one update moves the policy by 0.15 nats"),
    ],
)
def test_values_beyond_a_bound_give_a_warning_and_others_none(beyond: dict[str, Any], within: dict[str, Any], line: str) -> None:
    assert of(**beyond) == (line,)
    assert of(**within) == ()


def test_skipped_updates_give_a_warning() -> None:
    assert health_warnings({"updates_skipped": 0}) == ()
    assert health_warnings({"updates_skipped": 1}) == ("1 update was skipped: its gradient was not finite",)
    assert health_warnings({"updates_skipped": 30}) == ("30 updates were skipped: their gradients were not finite",)


def test_unknown_values_give_no_warning() -> None:
    assert health_warnings({}) == ()
    assert health_warnings({"learner_updates": 5, "clipped_share": None, "health": None}) == ()
    assert of(explained_variance=None, effective_sample_size=None) == ()
    assert of(updates=1999, explained_variance=-3.0) == ()
