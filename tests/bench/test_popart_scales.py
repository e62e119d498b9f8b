"""The benchmark of two reward scales: its boards, its runs and its table."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.popart_scales import SCALE, VARIANTS, BoardsApart, Run, _made, _run_of, _summary, settings_of
from herd.components.suites import environment_spec, make_environments

FRAMES = 10_000


def test_variants_differ_only_in_the_named_settings() -> None:
    settings = {variant: settings_of(variant, 1, FRAMES, 1e-3) for variant in VARIANTS}
    assert [settings[name].value_scaling.kind for name in ("popart", "multi_head", "impala", "impala_clipped")] == [
        "popart",
        "multi_head",
        "none",
        "none",
    ]
    assert {name for name, one in settings.items() if one.algorithm.reward_shaping == "clip"} == {"impala_clipped"}
    plain = {name: one.model_dump(exclude={"name", "value_scaling"}) for name, one in settings.items() if name != "impala_clipped"}
    assert plain["popart"] == plain["multi_head"] == plain["impala"]


def test_the_two_tasks_share_no_pixel_and_differ_in_their_rewards() -> None:
    env = settings_of("popart", 1, FRAMES, 1e-3).env
    made = make_environments(env, num_environments=4, first_slot=0, seed=3, num_threads=1)
    boards, plain = BoardsApart(made), make_environments(env, num_environments=4, first_slot=0, seed=3, num_threads=1)
    assert boards.spec.frame_shape == (10, 10, 1)
    assert environment_spec(env).task_names == ("catch", "catch_x1000")
    seen, expected = boards.reset(), plain.reset()
    largest = np.zeros(2)
    for _ in range(20):
        for slot, task in enumerate((0, 1, 0, 1)):
            halves = seen.stack[slot, :, :, :5], seen.stack[slot, :, :, 5:]
            np.testing.assert_array_equal(halves[task], expected.stack[slot])
            assert not halves[1 - task].any()
        actions = np.array([0, 1, 2, 0], np.int32)
        transition = boards.step(actions)
        seen, expected = transition.observation, plain.step(actions).observation
        for slot, task in enumerate((0, 1, 0, 1)):
            largest[task] = max(largest[task], abs(transition.rewards[slot]))
    assert largest.tolist() == [1.0, SCALE]


def test_results_are_cached_and_reproducible_for_a_seed(tmp_path: Path) -> None:
    first, again = (_made(tmp_path / name, "popart", 1, FRAMES, 2e-3) for name in ("first.json", "again.json"))
    assert (first.curves, first.finals) == (again.curves, again.finals)
    assert _made(tmp_path / "first.json", "popart", 1, FRAMES, 2e-3) == first  # the result is read from the file, not computed again
    assert all(math.isfinite(point) and -1.0 <= point <= 1.0 for curve in first.curves for point in curve)


def test_returns_are_scaled_and_the_final_one_is_the_last_tenth() -> None:
    early = [(frames, task, -1.0 * (1.0, SCALE)[task]) for frames in range(1, 900, 10) for task in (0, 1)]
    late = [(frames, task, (0.5, 0.9)[task] * (1.0, SCALE)[task]) for frames in range(901, 1000, 10) for task in (0, 1)]
    run = _run_of("popart", 1, np.array(early + late), 1000, 1.0)
    assert run.finals == pytest.approx((0.5, 0.9))
    assert run.curves[1][0] == -1.0


def test_a_seed_counts_as_learned_only_if_both_tasks_are() -> None:
    curve = (0.0,) * 30
    runs = [Run("popart", seed, (curve, curve), finals, 1.0) for seed, finals in enumerate([(0.9, 0.9), (0.9, 0.1), (0.2, 0.95)])]
    summary = _summary(runs)
    assert (summary["num_learned"], summary["num_learned_both"], summary["num_seeds"]) == ([2, 2], 1, 3)
    assert summary["worse_task"].mean == pytest.approx((0.9 + 0.1 + 0.2) / 3)
