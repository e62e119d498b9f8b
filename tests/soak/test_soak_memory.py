"""Growth of memory is detected, and restarts by faults are not mistaken for it."""

from __future__ import annotations

import pytest

from benchmarks.soak.memory import WARM_UP_SECONDS, Growth, Sample, growth

MEGABYTE = 1 << 20
SECONDS = 3600.0


def size_at(age: float) -> float:
    """Size of a healthy process: 300 MB, reached within the first minutes, and constant afterwards."""
    return 300.0 - 60.0 * 2 ** (-age / 40.0)


def samples(lives: list[float], grown: float = 0.0, leak_per_hour: float = 0.0) -> list[Sample]:
    """Samples of incarnations that start at these times. Each is larger by ``grown`` times the elapsed share of the run, and leaks."""
    found = []
    for number, start in enumerate(lives):
        end = lives[number + 1] if number + 1 < len(lives) else SECONDS
        at = start
        while at < end:
            megabytes = size_at(at - start) * (1 + grown * start / SECONDS) + leak_per_hour * (at - start) / 3600.0
            found.append(Sample(at, number, at - start, round(megabytes * MEGABYTE)))
            at += 2.0
    return found


RESTARTED = [0.0, 700.0, 1000.0, 1400.0, 1500.0, 2300.0, 2690.0, 2730.0, 2800.0, 3300.0, 3350.0, 3450.0]
"""Processes are younger in the last quarter than in the second."""


def between(result: Growth) -> float:
    assert result.between_quarters is not None
    return result.between_quarters


def test_restarts_do_not_look_like_a_change_of_memory() -> None:
    assert between(growth(samples(RESTARTED), SECONDS)) == pytest.approx(0.0, abs=1e-3)


def test_growth_between_incarnations_is_detected() -> None:
    # 5 % over the run; the compared starts lie about half a run apart.
    assert 0.015 < between(growth(samples(RESTARTED, grown=0.05), SECONDS)) < 0.035


def test_growth_of_a_process_that_never_restarts_is_detected() -> None:
    assert between(growth(samples([0.0]), SECONDS)) == pytest.approx(0.0, abs=1e-3)
    grown = growth(samples([0.0], leak_per_hour=30.0), SECONDS)
    assert between(grown) == pytest.approx(0.05, rel=0.1)  # 15 MB of 300 MB in half an hour
    assert grown.incarnations == 1


def test_a_leak_hidden_by_restarts_shows_as_a_slope() -> None:
    result = growth(samples([0.0, *range(100, 3600, 200)], leak_per_hour=60.0), SECONDS)
    honest = growth(samples([0.0, *range(100, 3600, 200)]), SECONDS)
    assert result.slope_bytes_per_hour is not None
    assert honest.slope_bytes_per_hour is not None
    assert (result.slope_bytes_per_hour - honest.slope_bytes_per_hour) / MEGABYTE == pytest.approx(60.0, rel=0.01)


def test_growth_is_none_without_comparable_samples() -> None:
    young = [Sample(at, int(at), WARM_UP_SECONDS - 1, MEGABYTE) for at in range(0, 3600, 10)]
    assert growth(young, SECONDS).between_quarters is None
    assert growth(young, SECONDS).slope_bytes_per_hour is None
    assert growth([], SECONDS) == Growth(0, 0, None, 0, None)
