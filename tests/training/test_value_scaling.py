"""Value heads of several tasks: MultiHead and PopArt (arXiv:1809.04474), against loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from herd.algorithms.popart import PopArtStatistics, scale_of
from herd.components.value_scaling.api import Statistics, UnrollTargets, unroll_targets
from herd.components.value_scaling.popart import PopArtSettings
from herd.components.value_scaling.popart.scaling import PopArt
from tests.training.small_runs import RUN, STEP, batch_of, buffer_of, run_of, trainer_of, unrolls_of

TASKS = {**RUN["env"], "tasks": ["catch", "catch_instructed"]}
RATE = 0.1


def _popart(**changes: object) -> PopArt:
    return PopArt(PopArtSettings.model_validate({"rate": RATE, **changes}), 3)


def _targets(num_unrolls: int = 12) -> UnrollTargets:
    random = np.random.default_rng(3)
    mean = torch.from_numpy(random.normal(5.0, 3.0, num_unrolls))
    return UnrollTargets(
        mean,
        mean.square() + 1.0,
        torch.from_numpy(random.integers(0, 3, num_unrolls)).double(),
        torch.from_numpy(random.integers(0, 2, num_unrolls)),  # task 2 is absent
        torch.from_numpy(random.random(num_unrolls) < 0.3),
    )


@pytest.mark.parametrize(("replayed", "second_moment"), [(False, "unroll_means"), (True, "targets")])
def test_statistics_follow_equation_6_unroll_by_unroll(replayed: bool, second_moment: str) -> None:
    popart, targets = _popart(replayed=replayed, second_moment=second_moment), _targets()
    shift, moment = [0.0] * 3, [1.0] * 3
    for mean, square, num_rows, task, is_replayed in zip(*(tensor.tolist() for tensor in targets), strict=True):
        if num_rows == 0 or (is_replayed and not replayed):
            continue
        shift[task] = (1 - RATE) * shift[task] + RATE * mean
        moment[task] = (1 - RATE) * moment[task] + RATE * (square if second_moment == "targets" else mean**2)
    found = popart.updated(popart.initial("cpu"), targets)
    np.testing.assert_allclose(found["shift"].numpy(), shift, rtol=1e-13)
    np.testing.assert_allclose(found["second_moment"].numpy(), moment, rtol=1e-13)
    assert (found["shift"][2], found["second_moment"][2]) == (0.0, 1.0)


STATISTICS = st.tuples(st.floats(-1e4, 1e4), st.floats(0.0, 1e6))
"""A shift and a standard deviation (possibly 0), beyond both bounds of the scale."""


def _statistics(drawn: list[tuple[float, float]]) -> Statistics:
    shift, deviation = torch.tensor(drawn, dtype=torch.float64).T
    return {"shift": shift, "second_moment": shift.square() + deviation.square()}


@settings(max_examples=200)
@given(st.lists(STATISTICS, min_size=3, max_size=3), st.lists(STATISTICS, min_size=3, max_size=3))
def test_rescaling_preserves_un_normalised_values(before: list[tuple[float, float]], after: list[tuple[float, float]]) -> None:
    popart = _popart(min_scale=1e-2, max_scale=1e5)
    head = nn.Linear(8, 3, dtype=torch.float64)
    features = torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    task_ids = torch.tensor([0, 1, 1, 2])
    expected, scale = popart.values(_statistics(before), head(features), task_ids)
    popart.rescale(head, _statistics(before), _statistics(after))
    found, new_scale = popart.values(_statistics(after), head(features), task_ids)
    assert scale is not None
    assert new_scale is not None
    for values_scale in (scale, new_scale):
        assert 1e-2 <= float(values_scale.min()) <= float(values_scale.max()) <= 1e5
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_statistics_keep_moving_after_many_updates() -> None:
    """A float32 count of updates stops at 2^24, and in float32 1 - rate is 1 if the rate is below 2^-25."""
    popart = _popart(rate=2.0**-26)
    one = UnrollTargets(
        torch.tensor([8.0]).double(), torch.tensor([64.0]).double(), torch.ones(1), torch.tensor([1]), torch.tensor([False])
    )
    statistics: Statistics = {"shift": torch.full((3,), 4.0).double(), "second_moment": torch.full((3,), 17.0).double()}
    for _ in range(100):
        statistics = popart.updated(statistics, one)
    assert {tensor.dtype for tensor in statistics.values()} == {torch.float64}
    assert set(statistics) == {"shift", "second_moment"}
    assert statistics["shift"][1].item() - 4.0 == pytest.approx(100 * 2.0**-26 * 4.0, rel=1e-4)
    assert statistics["second_moment"][1].item() - 17.0 == pytest.approx(100 * 2.0**-26 * (64.0 - 17.0), rel=1e-4)
    assert (statistics["shift"][0], statistics["second_moment"][2]) == (4.0, 17.0)


def test_the_scale_is_bounded_and_negative_variances_are_0() -> None:
    shift = torch.tensor([1.0, 0.0, 2.0, 0.0, 1e6], dtype=torch.float64)
    second_moment = torch.tensor([1.0 - 1e-12, 1e20, 13.0, 0.25, 1e12 - 0.5], dtype=torch.float64)
    scale = scale_of(PopArtStatistics(shift, second_moment), min_scale=1e-4, max_scale=1e6)
    assert scale.tolist() == [1e-4, 1e6, 3.0, 0.5, 1e-4]


def test_targets_are_averaged_over_the_trained_rows_of_each_unroll() -> None:
    targets = torch.tensor([[1.0, 5.0, math.nan], [3.0, 9.0, math.nan]])
    trained = torch.tensor([[True, True, False], [True, False, False]])
    found = unroll_targets(targets, trained, torch.tensor([0, 1, 2]), torch.zeros(3, dtype=torch.bool))
    assert (found.mean.tolist(), found.mean_square.tolist(), found.num_rows.tolist()) == (
        [2.0, 5.0, 0.0],
        [5.0, 25.0, 0.0],
        [2.0, 1.0, 0.0],
    )


@pytest.mark.parametrize("kind", ["multi_head", "popart"])
def test_an_unroll_trains_only_the_head_of_its_task(kind: str) -> None:
    trainer = trainer_of(run_of(env=TASKS, value_scaling={"kind": kind}))
    before = trainer.agent.value_head.weight.detach().clone()
    arrays = unrolls_of(run_of(env=TASKS))
    arrays["task_id"][...] = 1
    trainer(buffer_of(run_of(env=TASKS), arrays), STEP)
    moved = (trainer.agent.value_head.weight.detach() - before).abs().amax(dim=1)
    assert moved[0] == 0.0
    assert moved[1] > 0.0


def test_a_skipped_update_does_not_change_the_statistics() -> None:
    run = run_of(env=TASKS, value_scaling={"kind": "popart", "rate": RATE})
    trainer = trainer_of(run)
    trainer(batch_of(run), STEP)
    before = trainer.parts["value_statistics"].tensors()
    assert before["shift"].abs().min() > 0.0
    poisoned = unrolls_of(run, 1)
    poisoned["initial_core_state"][0], poisoned["core_reset"][0, 0] = math.nan, False
    assert not trainer(buffer_of(run, poisoned), STEP).is_finite
    assert {name: tensor.tolist() for name, tensor in trainer.parts["value_statistics"].tensors().items()} == {
        name: tensor.tolist() for name, tensor in before.items()
    }
