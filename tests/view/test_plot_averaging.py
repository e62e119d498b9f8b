import numpy as np
import pytest

from herd.view.plots.averaging import FloatArray, interquartile_mean_curve, mean_curve, single_curve, smoothed


def test_smoothing_averages_past_points_and_keeps_gaps() -> None:
    values = np.array([np.nan, 2.0, 4.0, np.nan, 9.0, 1.0])
    np.testing.assert_allclose(smoothed(values, 3), [np.nan, 2.0, 3.0, np.nan, 6.5, 5.0])
    np.testing.assert_array_equal(smoothed(values, 1), values)
    with pytest.raises(ValueError, match="at least one point"):
        smoothed(values, 0)


def repeats(count: int) -> list[tuple[FloatArray, FloatArray]]:
    """Runs with different x axes. They are linear, so interpolation is exact: at x the values are k * x + k * k."""
    axes = [np.linspace(start, start + 10.0, 4 + start) for start in range(count)]
    return [(x, k * x + k * k) for k, x in enumerate(axes)]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_few_runs_give_a_mean_and_a_band_of_extremes(count: int) -> None:
    curve = mean_curve(repeats(count))
    assert curve is not None
    assert (curve.num_runs, curve.has_band) == (count, True)
    assert (curve.x[0], curve.x[-1]) == (count - 1.0, 10.0)  # the range that all runs cover
    for index in (0, 57, -1):
        at = [k * curve.x[index] + k * k for k in range(count)]
        np.testing.assert_allclose([curve.low[index], curve.mean[index], curve.high[index]], [min(at), sum(at) / count, max(at)])


def test_five_or_more_runs_give_a_bootstrap_band() -> None:
    curve = mean_curve(repeats(6))
    assert curve is not None
    at_end = np.array([10.0 * k + k * k for k in range(6)])
    generator = np.random.default_rng(7)
    means = sorted(float(np.mean([at_end[generator.integers(6)] for _ in range(6)])) for _ in range(20_000))
    # With 2,000 resamples the ends are accurate to a few per cent of the width.
    width = means[19_500] - means[500]
    assert curve.low[-1] == pytest.approx(means[500], abs=0.06 * width)
    assert curve.high[-1] == pytest.approx(means[19_500], abs=0.06 * width)
    assert (curve.low >= min(0.0, at_end.min())).all()
    assert (curve.high <= at_end.max()).all()
    again = mean_curve(repeats(6))
    assert again is not None
    np.testing.assert_array_equal(again.low, curve.low)


def slow_interquartile_mean(values: list[float]) -> float:
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


def test_the_interquartile_mean_covers_all_tasks_and_runs() -> None:
    x = np.array([0.0, 1.0, 2.0])
    # Five tasks; the first game of the last task ends late.
    one = np.array([[0.0, 0.1, 0.2, 0.9, np.nan], [0.3, 0.1, 0.2, 0.9, 7.0], [0.4, 0.2, 0.3, 1.9, 9.0]])
    alone = interquartile_mean_curve([(x, one)])
    assert alone is not None
    assert alone.x.tolist() == [1.0, 2.0]
    np.testing.assert_allclose(alone.mean, [slow_interquartile_mean(list(one[row])) for row in (1, 2)])
    assert not alone.has_band

    other = one + np.array([0.5, -0.1, 0.0, 0.2, -3.0])
    both = interquartile_mean_curve([(x, one), (x, other)])
    assert both is not None
    assert (both.x[0], both.x[-1], both.num_runs) == (1.0, 2.0, 2)
    each = [slow_interquartile_mean(list(scores[2])) for scores in (one, other)]
    together = slow_interquartile_mean([*one[2], *other[2]])
    expected = [min(*each, together), together, max(*each, together)]
    np.testing.assert_allclose([both.low[-1], both.mean[-1], both.high[-1]], expected)


def test_the_band_resamples_runs_within_each_task() -> None:
    generator = np.random.default_rng(3)
    x, scores = np.array([0.0, 1.0]), generator.normal(size=(5, 6))
    curve = interquartile_mean_curve([(x, np.stack([own, own])) for own in scores])
    assert curve is not None
    resampled = sorted(
        slow_interquartile_mean([float(scores[generator.integers(5), task]) for task in range(6) for _ in range(5)]) for _ in range(4_000)
    )
    low, high = resampled[100], resampled[3_900]
    assert curve.low[0] == pytest.approx(low, abs=0.1 * (high - low))
    assert curve.high[0] == pytest.approx(high, abs=0.1 * (high - low))
    assert interquartile_mean_curve([(x, np.full((2, 4), np.nan))]) is None


def test_a_run_without_scores_is_left_out_of_the_mean() -> None:
    x = np.array([0.0, 1.0])
    curve = mean_curve([(x, np.array([3.0, 5.0])), (x, np.full(2, np.nan))])
    assert curve is not None
    assert curve.num_runs == 1
    assert curve.mean.tolist() == [3.0, 5.0]
    assert mean_curve([(x, np.full(2, np.nan))]) is None


def test_runs_that_share_no_range_have_no_mean() -> None:
    assert mean_curve([(np.array([0.0, 1.0]), np.zeros(2)), (np.array([2.0, 3.0]), np.zeros(2))]) is None


def test_single_curve_drops_gaps() -> None:
    curve = single_curve(np.array([1.0, 2.0, 3.0]), np.array([np.nan, 5.0, 6.0]))
    assert (curve.x.tolist(), curve.mean.tolist(), curve.num_runs) == ([2.0, 3.0], [5.0, 6.0], 1)
