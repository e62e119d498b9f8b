"""Muon against its definition, and what it leaves to Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.components.optimizers import OPTIMIZERS
from herd.components.optimizers.muon import MuonSettings
from herd.components.optimizers.muon.muon import Muon, orthogonal
from tests.oracles.muon import muon_path, newton_schulz

torch.set_num_threads(1)

NUM_UPDATES = 6
LEARNING_RATES = [0.05 * (1.0 - update / NUM_UPDATES) for update in range(NUM_UPDATES)]


def make(*parameters: torch.Tensor) -> Muon:
    optimizer = OPTIMIZERS.make(MuonSettings(momentum=0.9), list(parameters))
    assert isinstance(optimizer, Muon)
    return optimizer


@pytest.mark.parametrize("shape", [(32, 64), (64, 32), (48, 2, 4, 4), (16, 2, 8, 8)])
def test_muon_agrees_with_the_oracle(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    rows = (shape[0], int(np.prod(shape[1:])))
    start, gradients = rng.normal(size=rows), [rng.normal(size=rows) * 10.0**scale for scale in (-3, 0, 2, 0, -1, 0)]
    parameter = (
        torch.tensor(start, dtype=torch.float32)
        .view(shape)
        .contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.preserve_format)
    )
    parameter.requires_grad_()
    bias = torch.zeros(3, requires_grad=True)
    optimizer = make(parameter, bias)
    path = [start, *muon_path(start, gradients, LEARNING_RATES, momentum=0.9)]
    for gradient, rate, before, after in zip(gradients, LEARNING_RATES, path, path[1:], strict=False):
        old = parameter.detach().numpy().reshape(rows).astype(np.float64)
        parameter.grad, bias.grad = torch.tensor(gradient, dtype=torch.float32).view(shape), torch.ones(3)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        np.testing.assert_allclose(parameter.detach().numpy().reshape(rows) - old, after - before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_newton_and_schulz_apply_their_polynomial_to_the_singular_values(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(2).normal(size=shape)
    step = orthogonal(torch.tensor(matrix)).numpy()
    np.testing.assert_allclose(step, newton_schulz(matrix), rtol=0, atol=1e-6)
    values = np.linalg.svd(step, compute_uv=False)
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_dense_layers_with_few_inputs_or_outputs_have_adam() -> None:
    head, dense, first = (torch.ones(shape, requires_grad=True) for shape in ((31, 64), (32, 32), (16, 4, 8, 8)))
    optimizer = make(head, dense, first)
    for parameter in (head, dense, first):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert set(optimizer.state[head]) == {"step", "exp_avg", "exp_avg_sq"}
    assert set(optimizer.state[dense]) == set(optimizer.state[first]) == {"momentum"}


def test_a_matrix_without_gradient_is_not_changed_and_one_of_zeros_stays() -> None:
    unused, still, bias = torch.ones(32, 32, requires_grad=True), torch.ones(32, 32, requires_grad=True), torch.ones(3, requires_grad=True)
    optimizer = make(unused, still, bias)
    still.grad = torch.zeros_like(still)
    optimizer.step()
    assert torch.equal(unused, torch.ones(32, 32))
    assert torch.equal(still, torch.ones(32, 32))
    assert unused not in optimizer.state
