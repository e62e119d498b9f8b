"""The linear schedule's ends and middle."""

from __future__ import annotations

import pytest

from herd.algorithms.schedules import learning_rate_at


@pytest.mark.parametrize(("env_frames", "expected"), [(0, 6e-4), (50, 4.5e-4), (100, 3e-4), (199, 3e-6), (200, 0.0), (300, 0.0)])
def test_linear_reaches_zero_at_its_end_and_stays(env_frames: int, expected: float) -> None:
    rate = learning_rate_at(env_frames, learning_rate=6e-4, schedule="linear", schedule_env_frames=200)
    assert rate == pytest.approx(expected, rel=1e-9, abs=1e-18)
    assert rate >= 0.0


def test_constant_is_constant() -> None:
    assert learning_rate_at(10**9, learning_rate=6e-4, schedule="constant", schedule_env_frames=200) == 6e-4


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="'cosine'"):
        learning_rate_at(0, learning_rate=6e-4, schedule="cosine", schedule_env_frames=200)  # type: ignore[arg-type]
