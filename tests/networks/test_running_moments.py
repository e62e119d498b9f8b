"""Running moments of vectors: against numpy's over everything seen, and where an agent has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from herd.config.run import NetworkSettings
from herd.contract.spaces import NO_FRAMES, EnvSpec, discrete
from herd.networks.centering import LARGEST_NORMALIZED, SLOWEST_RATE, RunningMoments
from herd.run.tensors import decode_weights, encode_weights
from herd.training.parallel import OneShard
from tests.training.small_runs import STEP, buffer_of, run_of, trainer_of, unrolls_of

WIDE = EnvSpec(("task",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=3, vector_is_bounded=False)
NARROW = replace(WIDE, vector_is_bounded=True)
CARTPOLE = {"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}}


def _update(moments: RunningMoments, vectors: torch.Tensor, *, num_empty: int = 0, is_taken: bool = True) -> None:
    """Update with ``vectors`` [R, B, D], of which the first rows may be empty."""
    counts = torch.ones(vectors.shape[:2], dtype=torch.bool)
    counts[:num_empty] = False
    moments.update(vectors, counts, torch.tensor(is_taken), OneShard().all_reduce_sum)


def test_after_batches_of_equal_size_they_are_those_of_all_numbers() -> None:
    random = np.random.default_rng(3)
    moments = RunningMoments(3)
    batches = [random.normal([1e6, 0.0, -3.0], [2.0, 1e-3, 70.0], (5, 4, 3)) + drift for drift in (0.0, 1.0, 9.0, -4.0)]
    for batch in batches:
        _update(moments, torch.from_numpy(batch))
    seen = np.concatenate(batches).reshape(-1, 3)
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(moments.deviation, seen.std(0), rtol=1e-6)
    some = seen[:7].astype(np.float32)
    np.testing.assert_allclose(moments(torch.from_numpy(some)), (some - seen.mean(0)) / seen.std(0), rtol=1e-4, atol=1e-6)
    # Late in a run the newest batch has a small, constant weight.
    moments.num_batches.fill_(10**6)
    _update(moments, torch.zeros(1, 1, 3, dtype=torch.float64))
    np.testing.assert_allclose(moments.mean, (1 - SLOWEST_RATE) * seen.mean(0), rtol=1e-6)


def test_rows_of_no_game_do_not_count() -> None:
    vectors = 1e6 + torch.randn(21, 50, 1, generator=torch.Generator().manual_seed(0))
    vectors[:10] = 0.0
    moments = RunningMoments(1)
    _update(moments, vectors, num_empty=10)
    assert float(moments.deviation) == pytest.approx(1.0, abs=0.1)
    before = {name: tensor.clone() for name, tensor in moments.state_dict().items()}
    _update(moments, vectors, num_empty=21)
    _update(moments, vectors + 1.0, is_taken=False)
    torch.testing.assert_close(moments.state_dict(), before, rtol=0, atol=0)


def test_a_number_that_never_changed_is_limited_when_it_does() -> None:
    moments = RunningMoments(2)
    _update(moments, torch.tensor([[[5.0, 1.0], [5.0, -1.0]]]))
    assert moments(torch.tensor([[5.0, 1.0], [6.0, -1.0], [4.0, 0.0]])).tolist() == [
        [0.0, 1.0],
        [LARGEST_NORMALIZED, -1.0],
        [-LARGEST_NORMALIZED, 0.0],
    ]


@pytest.mark.parametrize(
    ("values", "spec", "normalizes"),
    [
        ({"torso": "mlp"}, WIDE, True),
        ({"torso": "mlp", "vector_normalization": "none"}, WIDE, False),
        ({"torso": "mlp"}, NARROW, False),
        (
            {"torso": "mlp", "vector_normalization": "running"},
            EnvSpec(("t",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=3),
            True,
        ),
        ({"vector_normalization": "running"}, EnvSpec(("t",), (84, 84, 1), 1, discrete(2), 1, 0), False),
        ({"torso": "mine:Torso"}, WIDE, False),
    ],
)
def test_wide_bounds_decide_unless_a_setting_does(values: dict[str, str], spec: EnvSpec, normalizes: bool) -> None:
    assert NetworkSettings.model_validate(values).normalizes_vector(spec) == normalizes


def test_new_rows_of_a_batch_update_them_once_after_its_last_use_and_weights_carry_them_unrounded() -> None:
    changes: dict[str, Any] = {
        "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 8}},
        "algorithm": {"unroll_length": 6, "burn_in": 2},
        "learner": {"batch_size": 3, "sample_reuse": 2},
    }
    run = run_of(**(CARTPOLE | changes))
    trainer = trainer_of(run)
    assert trainer.agent.moments is not None
    arrays = unrolls_of(run)
    valid = arrays["row_valid"]
    arrays["observations"][...] = np.random.default_rng(1).normal(1e6, 1.0, arrays["observations"].shape)
    arrays["observations"][:, :-1][~valid] = 0.0
    batch = trainer.to_device(buffer_of(run, arrays))
    trainer.begin(batch, 0)
    for num_before in range(2):
        assert int(trainer.agent.moments.num_batches) == 0, num_before
        trainer.finish(trainer.launch(batch), STEP)
    rows = arrays["observations"][:, 2:-1][valid[:, 2:]].astype(np.float64)
    weights = decode_weights(encode_weights(trainer.weights(), torch.bfloat16))
    assert int(weights["moments.num_batches"]) == 1
    np.testing.assert_allclose(weights["moments.mean"], rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(weights["moments.deviation"], rows.std(0), rtol=1e-9)
    again = trainer_of(run)
    again.parts["model"].load(weights)
    assert again.agent.moments is not None
    torch.testing.assert_close(again.agent.moments.mean, trainer.agent.moments.mean, rtol=0, atol=0)


def test_a_batch_with_a_gradient_that_is_not_finite_does_not_update_them() -> None:
    run = run_of(**CARTPOLE)
    trainer = trainer_of(run)
    arrays = unrolls_of(run)
    arrays["rewards"][...] = np.nan
    before = {name: tensor.clone() for name, tensor in trainer.weights().items()}
    assert not trainer(buffer_of(run, arrays), STEP).is_finite
    torch.testing.assert_close(trainer.weights(), before, rtol=0, atol=0)
