"""What the live view reports about a run's learning: a line just beyond each bound, and none just within it."""

from __future__ import annotations

from typing import Any

import pytest

from herd.config.run import StopSettings
from herd.launch.readings import Readings
from herd.view.health import health_warnings
from herd.view.snapshot import SnapshotMaker

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


@pytest.mark.parametrize(("entropy", "found"), [(0.099, True), (0.0, True), (0.1, False), (-0.5, False), (None, False)])
def test_a_policy_that_tries_nothing_new_gives_a_warning(entropy: float | None, found: bool) -> None:
    assert any("hardly explores any more" in line for line in health_warnings({"entropy": entropy})) is found


def test_ten_minutes_without_the_end_of_a_game_give_a_warning() -> None:
    maker = SnapshotMaker(StopSettings(env_frames=1000), earlier=[{"wall_seconds": 5.0, "episodes": 3}])

    def warnings(wall_seconds: float, episodes: int) -> tuple[str, ...]:
        point = {"wall_seconds": wall_seconds, "episodes": episodes}
        return maker.make(Readings(at=wall_seconds, samples={}, point=point), [], wall_seconds).warnings

    assert warnings(600.0, 3) == ()
    assert warnings(612.0, 3) == ("no game has ended for 10 minutes",)
    assert warnings(1250.0, 4) == ()
    assert warnings(1800.0, 4) == ()
    assert warnings(2000.0, 4) == ("no game has ended for 12 minutes",)


def test_unknown_values_give_no_warning() -> None:
    assert health_warnings({}) == ()
    assert health_warnings({"learner_updates": 5, "clipped_share": None, "health": None}) == ()
    assert of(explained_variance=None, effective_sample_size=None) == ()
    assert of(updates=1999, explained_variance=-3.0) == ()
