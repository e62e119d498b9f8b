from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from herd.components.optimizers import OPTIMIZERS
from herd.training.trainer import Trainer
from tests.training.small_runs import BATCH_SIZE, STEP, batch_of, buffer_of, run_of, trainer_of, unrolls_of, values_of
from tests.training.small_runs import RUN as SMALL

pytestmark = pytest.mark.usefixtures("one_thread")

RUN = run_of()


def _trainer(micro_batch_size: int = 2, **changes: Any) -> Trainer:
    return trainer_of(run_of(learner={"batch_size": BATCH_SIZE, "micro_batch_size": micro_batch_size}, **changes))


def _copies(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.weights().items()}


BOARD = {**SMALL["env"], "tasks": ["catch", "catch_instructed"], "frame_height": 9, "frame_width": 8}
PIXELS = {"env": BOARD, "auxiliary": {"kind": "pixel_control", "cell_size": 1, "cost": 0.02}, "optimizer": {"max_gradient_norm": None}}
MICRO_BATCHED: dict[str, dict[str, Any]] = {
    "sum": {"loss": {"reduction": "sum"}},
    "mean": {"loss": {"reduction": "mean"}},
    "dice": {"loss": {"kind": "dice", "ablation": "entropy"}},
    "pixel control, one step, burn-in": {**PIXELS, "loss": {"correction": "one_step"}, "algorithm": {"unroll_length": 5, "burn_in": 2}},
    "pixel control, dice, mean": {**PIXELS, "loss": {"kind": "dice", "reduction": "mean"}},
    "pixel control, popart, language, replay": {
        **PIXELS,
        "network": {**SMALL["network"], "language": True},
        "loss": {"trust_region": "behaviour", "trust_region_threshold": 1.0},
        "value_scaling": {"kind": "popart", "rate": 0.1, "replayed": True},
        "replay": {"kind": "local", "fraction": 0.4, "capacity_unrolls": 100, "minimum_fill_unrolls": 1},
    },
    "pixel control, multi_head, feed-forward": {**PIXELS, "network": {"torso": "mlp"}, "value_scaling": {"kind": "multi_head"}},
}


@pytest.mark.parametrize("changes", MICRO_BATCHED.values(), ids=MICRO_BATCHED)
def test_micro_batches_do_not_change_the_update(changes: dict[str, Any]) -> None:
    whole, parts = _trainer(BATCH_SIZE, **changes), {size: _trainer(size, **changes) for size in (1, 3)}
    before = _copies(whole)
    for step in range(3):
        buffer = batch_of(run_of(**changes), step)
        buffer.arrays["is_replayed"][::2] = "replay" in changes
        expected = whole(buffer, STEP)
        for trainer in parts.values():
            statistics = trainer(buffer, STEP)
            assert values_of(statistics.losses) == pytest.approx(values_of(expected.losses), rel=1e-4, abs=1e-5)
            assert statistics.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
    assert ("loss_pixel_control" in expected.losses) == ("auxiliary" in changes)
    for name, tensor in (whole.weights() | whole.parts["auxiliary"].tensors()).items():
        for trainer in parts.values():
            found = trainer.weights() | trainer.parts["auxiliary"].tensors()
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)
    assert max(float((before[name] - tensor).abs().max()) for name, tensor in whole.weights().items()) > 1e-4  # well above the tolerance


@pytest.mark.parametrize(
    "loss",
    [
        {"baseline_cost": 0.25, "entropy_cost": 0.5},
        {"kind": "dice"},
        {"kind": "dice", "ablation": "entropy"},
        {"trust_region": "behaviour", "trust_region_threshold": 0.3},
    ],
    ids=str,
)
def test_weighted_terms_of_a_loss_add_up_to_its_total(loss: dict[str, Any]) -> None:
    losses = _trainer(loss=loss)(batch_of(RUN), STEP).losses
    total = losses.pop("loss_total")
    assert total.cost == 1.0
    terms = [measured.cost * measured.value for measured in losses.values() if measured.cost is not None]
    assert len(terms) >= 3
    # Terms are means over the accepted rows, the total one over the trained rows.
    rejected = losses["rejected_share_online"].value if "trust_region" in loss else 0.0
    assert 0.0 < rejected < 1.0 or "trust_region" not in loss
    assert total.value == pytest.approx((1.0 - rejected) * sum(terms), rel=1e-4)
    assert all(abs(term) > 1e-3 * abs(total.value) for term in terms if term != 0.0)


def test_reduction_mean_divides_the_gradient_by_the_trained_rows() -> None:
    optimizer = {"max_gradient_norm": None}
    by_sum, by_mean = _trainer(optimizer=optimizer), _trainer(optimizer=optimizer, loss={"reduction": "mean"})
    batch = batch_of(RUN)
    of_sum, of_mean = by_sum(batch, STEP), by_mean(batch, STEP)
    assert of_mean.gradient_norm == pytest.approx(of_sum.gradient_norm / int(batch.batch.trained.sum()), rel=1e-4)
    assert values_of(of_mean.losses) == pytest.approx(values_of(of_sum.losses), rel=1e-5)  # reported per row in both cases


def test_a_batch_without_valid_rows_changes_nothing() -> None:
    trainer = _trainer(optimizer={"momentum": 0.0})
    before = _copies(trainer)
    arrays = unrolls_of(RUN)
    arrays["row_valid"][...] = False
    statistics = trainer(buffer_of(RUN, arrays), STEP)
    assert (statistics.is_finite, statistics.gradient_norm) == (True, 0.0)
    assert set(values_of(statistics.losses).values()) == {0.0}
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.weights().items())


def test_the_gradient_is_clipped_by_its_global_norm() -> None:
    free, clipped = _trainer(optimizer={"max_gradient_norm": None}), _trainer(optimizer={"max_gradient_norm": 0.5})
    norm = free(batch_of(RUN), STEP).gradient_norm
    assert norm > 1.0
    assert clipped(batch_of(RUN), STEP).gradient_norm == pytest.approx(norm)  # the norm before clipping
    for one, other in zip(free.agent.parameters(), clipped.agent.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(other.grad, one.grad * (0.5 / norm), rtol=1e-4, atol=1e-7)


def test_initial_parameters_depend_on_the_seed() -> None:
    one, same, other = _trainer(), _trainer(), _trainer(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.agent.parameters(), same.agent.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.agent.parameters(), other.agent.parameters(), strict=True))


OPTIMIZERS_OF_TORCH: dict[str, Any] = {
    "nadam": partial(torch.optim.NAdam, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": partial(torch.optim.RAdam, weight_decay=0.1),
    "adamax": torch.optim.Adamax,
    "rmsprop": partial(torch.optim.RMSprop, momentum=0.5),
    "sgd": partial(torch.optim.SGD, momentum=0.9, lr=1e-2),
}
"""They lack fused kernels, which know how to skip a step."""


@pytest.mark.parametrize(
    ("kind", "poison", "limit"),
    [*((kind, np.nan, 0.5) for kind in OPTIMIZERS_OF_TORCH), ("own", np.nan, 0.5), ("own", np.inf, 0.5), ("own", np.nan, None)],
)
def test_any_optimizer_clips_and_skips(kind: str, poison: float, limit: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "own":
        monkeypatch.setattr(OPTIMIZERS, "make", lambda _settings, parameters: OPTIMIZERS_OF_TORCH[kind](parameters))
    algorithm = {"unroll_length": 4, "reward_shaping": "none"}
    trainer = _trainer(optimizer={"max_gradient_norm": limit, "momentum": 0.5}, algorithm=algorithm)
    poisoned = unrolls_of(RUN, 1)
    poisoned["initial_core_state"][0, 0] = poison
    poisoned["core_reset"][0, 0] = False
    if poison == np.inf:
        poisoned["rewards"][...] = 3e38

    def left() -> float:
        return float(torch.nn.utils.get_total_norm([p.grad for p in trainer.agent.parameters() if p.grad is not None]))

    fresh = _copies(trainer)
    assert not trainer(buffer_of(RUN, poisoned), STEP).is_finite  # the very first step makes the state that it must not move
    assert all(torch.equal(fresh[name], tensor) for name, tensor in trainer.weights().items())
    assert trainer(batch_of(RUN), STEP).gradient_norm > 0.5
    assert (left() == pytest.approx(0.5, rel=1e-4)) == (limit is not None)
    parameters = _copies(trainer)
    state = {name: tensor.clone() for name, tensor in trainer.parts["optimizer"].tensors().items()}
    assert not trainer(buffer_of(RUN, poisoned), STEP).is_finite
    assert all(torch.equal(parameters[name], tensor) for name, tensor in trainer.weights().items())
    assert all(torch.equal(state[name], tensor) for name, tensor in trainer.parts["optimizer"].tensors().items())
    assert trainer(batch_of(RUN, 2), STEP).is_finite
    assert not all(torch.equal(parameters[name], tensor) for name, tensor in trainer.weights().items())
