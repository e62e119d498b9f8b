"""Value heads of several tasks: MultiHead and PopArt (arXiv:1809.04474), against loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from herd.algorithms.popart import PopArtStatistics, scale_of, updated
from herd.config.value_scaling import PopArtSettings
from herd.learning.batch import Slab
from herd.learning.value_scaling import PopArt, UnrollTargets, unroll_targets
from tests.learning.small_runs import RUN, STEP, batch_of, run_of, slab_of, trainer_of, unrolls_of

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
def test_statistics_are_moved_unroll_by_unroll_as_eq_6_says(replayed: bool, second_moment: str) -> None:
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


def test_the_rewrite_leaves_un_normalised_values_what_they_were() -> None:
    popart = _popart()
    head, features = nn.Linear(8, 3), torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(1))
    task_ids = torch.tensor([0, 1, 1, 2])
    before = popart.initial("cpu")
    after = popart.updated(before, _targets())
    expected, scale = popart.values(before, head(features), task_ids)
    assert scale is not None
    assert scale.tolist() == [1.0] * 4
    popart.rescale(head, before, after)
    found, scale = popart.values(after, head(features), task_ids)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert scale is not None
    assert (scale[:3] != 1.0).all()
    # Back to a run's begin: the head says un-normalised values itself.
    popart.rescale(head, after, before)
    torch.testing.assert_close(popart.values(before, head(features), task_ids)[0], expected, rtol=1e-5, atol=1e-5)


def test_the_scale_is_bounded_and_a_variance_below_0_is_0() -> None:
    statistics = PopArtStatistics(torch.tensor([1.0, 0.0, 2.0, 0.0]).double(), torch.tensor([1.0 - 1e-12, 1e20, 13.0, 0.25]).double())
    assert scale_of(statistics, min_scale=1e-4, max_scale=1e6).tolist() == [1e-4, 1e6, 3.0, 0.5]


def test_with_no_reward_ever_the_scale_reaches_its_bound_after_some_61_000_unrolls() -> None:
    def after(unrolls: int) -> float:
        zeros = torch.zeros(unrolls)
        start = PopArtStatistics(torch.zeros(1).double(), torch.ones(1).double())
        for chunk in zeros.split(1000):
            none = torch.zeros(len(chunk), dtype=torch.int64)
            start = updated(start, means=chunk, mean_squares=chunk, task_ids=none, counts=none == 0, rate=3e-4)
        return scale_of(start, min_scale=1e-4, max_scale=1e6).item()

    assert after(60_000) > 1e-4
    assert after(62_000) == pytest.approx(1e-4)


def test_targets_are_averaged_over_the_trained_rows_of_each_unroll() -> None:
    targets = torch.tensor([[1.0, 5.0, math.nan], [3.0, 9.0, math.nan]])
    trained = torch.tensor([[True, True, False], [True, False, False]])
    found = unroll_targets(targets, trained, torch.tensor([0, 1, 2]), torch.zeros(3, dtype=torch.bool))
    assert (found.mean.tolist(), found.mean_square.tolist(), found.num_rows.tolist()) == (
        [2.0, 5.0, 0.0],
        [5.0, 25.0, 0.0],
        [2.0, 1.0, 0.0],
    )


def _of_one_task(task: int) -> Slab:
    arrays = unrolls_of(run_of(env=TASKS))
    arrays["task_id"][...] = task
    return slab_of(run_of(env=TASKS), arrays)


@pytest.mark.parametrize("kind", ["multi_head", "popart"])
def test_an_unroll_trains_the_head_of_its_task_alone(kind: str) -> None:
    trainer = trainer_of(run_of(env=TASKS, value_scaling={"kind": kind}))
    before = trainer.agent.value_head.weight.detach().clone()
    trainer(_of_one_task(1), STEP)
    moved = (trainer.agent.value_head.weight.detach() - before).abs().amax(dim=1)
    assert moved[0] == 0.0
    assert moved[1] > 0.0


def test_a_run_follows_its_targets_and_a_skipped_update_does_not() -> None:
    settings = run_of(env=TASKS, value_scaling={"kind": "popart", "rate": RATE})
    trainer = trainer_of(settings)
    trainer(batch_of(settings), STEP)
    before = trainer.value_statistics()
    assert before["shift"].abs().min() > 0.0
    poisoned = unrolls_of(settings, 1)
    poisoned["initial_core_state"][0], poisoned["core_reset"][0, 0] = math.nan, False
    assert not trainer(slab_of(settings, poisoned), STEP).is_finite
    assert {name: tensor.tolist() for name, tensor in trainer.value_statistics().items()} == {
        name: tensor.tolist() for name, tensor in before.items()
    }
