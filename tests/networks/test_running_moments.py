"""Running moments of vectors: against numpy's over everything seen, and where an agent has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from herd.config.run import NetworkSettings
from herd.contract.actions import discrete
from herd.contract.spaces import NO_FRAMES, EnvSpec
from herd.networks.centering import LARGEST_NORMALIZED, SLOWEST_RATE, RunningMoments
from herd.run.tensors import decode_weights, encode_weights
from herd.training.parallel import OneShard
from tests.training.small_runs import STEP, batch_of, run_of, trainer_of

WIDE = EnvSpec(("task",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=3, vector_is_bounded=False)
NARROW = replace(WIDE, vector_is_bounded=True)
CARTPOLE = {"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}}


def test_after_batches_of_equal_size_they_are_those_of_all_numbers() -> None:
    random = np.random.default_rng(3)
    moments = RunningMoments(3)
    batches = [random.normal([1e6, 0.0, -3.0], [2.0, 1e-3, 70.0], (5, 4, 3)) + drift for drift in (0.0, 1.0, 9.0, -4.0)]
    for batch in batches:
        moments.update(torch.from_numpy(batch), OneShard().all_reduce_sum)
    seen = np.concatenate(batches).reshape(-1, 3)
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(moments.deviation, seen.std(0), rtol=1e-6)
    some = seen[:7].astype(np.float32)
    np.testing.assert_allclose(moments(torch.from_numpy(some)), (some - seen.mean(0)) / seen.std(0), rtol=1e-4, atol=1e-6)
    # Late in a run the newest batch has a small, constant weight.
    moments.num_batches.fill_(10**6)
    moments.update(torch.zeros(1, 1, 3, dtype=torch.float64), OneShard().all_reduce_sum)
    np.testing.assert_allclose(moments.mean, (1 - SLOWEST_RATE) * seen.mean(0), rtol=1e-6)


def test_a_number_that_never_changed_is_limited_when_it_does() -> None:
    moments = RunningMoments(2)
    moments.update(torch.tensor([[[5.0, 1.0], [5.0, -1.0]]]), OneShard().all_reduce_sum)
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


def test_a_batch_updates_them_once_and_weights_carry_them_unrounded() -> None:
    run = run_of(**CARTPOLE, learner={"batch_size": 2, "sample_reuse": 2})
    trainer = trainer_of(run)
    assert trainer.agent.moments is not None
    buffer = batch_of(run)
    batch = trainer.to_device(buffer)
    trainer.begin(batch, 0)
    for _ in range(2):
        trainer.finish(trainer.launch(batch), STEP)
    rows = buffer.arrays["observations"].reshape(-1, 4).astype(np.float64)
    weights = decode_weights(encode_weights(trainer.weights(), torch.bfloat16))
    assert int(weights["moments.num_batches"]) == 1
    np.testing.assert_allclose(weights["moments.mean"], rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(weights["moments.deviation"], rows.std(0), rtol=1e-9)
    again = trainer_of(run)
    again.parts["model"].load(weights)
    assert again.agent.moments is not None
    torch.testing.assert_close(again.agent.moments.mean, trainer.agent.moments.mean, rtol=0, atol=0)
