"""The GRU against float64 steps by its equations, with episodes that start anywhere in the unroll."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from herd.components.cores.gru import GRUSettings
from herd.components.cores.gru.gru import GRUCore
from tests.oracles.networks_layers import Array, sigmoid

torch.set_num_threads(1)
T, B, INPUTS, H = 6, 3, 5, 4


def _expected(core: GRUCore, inputs: Array, reset: NDArray[np.bool_], state: Array) -> Array:
    """States after each row, [T, B, H]."""
    w, u, b, c = (p.detach().double().numpy() for p in (core.input_weight, core.hidden_weight, core.input_bias, core.hidden_bias))
    states = np.empty((T, B, H))
    for unroll in range(B):
        h = state[unroll]
        for t in range(T):
            h = np.zeros(H) if reset[t, unroll] else h
            r, z, n = np.split(w @ inputs[t, unroll] + b, 3)
            hr, hz, hn = np.split(u @ h + c, 3)
            keep = sigmoid(z + hz)
            h = (1.0 - keep) * np.tanh(n + sigmoid(r + hr) * hn) + keep * h
            states[t, unroll] = h
    return states


@pytest.mark.parametrize("num_tail_rows", [0, 2])
def test_outputs_states_and_gradients_agree_with_the_equations(num_tail_rows: int) -> None:
    torch.manual_seed(11)
    core = GRUCore(GRUSettings(size=H), INPUTS).double()
    for bias in (core.input_bias, core.hidden_bias):
        torch.nn.init.normal_(bias)
    inputs, state = torch.randn(T, B, INPUTS, dtype=torch.float64), torch.randn(B, H, dtype=torch.float64)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[0, 0] = reset[3, 1] = True
    outputs, left = core(inputs, reset, state, num_tail_rows=num_tail_rows, reset_rows=[0, 3])
    expected = _expected(core, inputs.numpy(), reset.numpy(), state.numpy())
    np.testing.assert_allclose(outputs.detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(left.detach().numpy(), expected[T - 1 - num_tail_rows], rtol=1e-12)
    weight = torch.arange(outputs.numel(), dtype=torch.float64).view_as(outputs)
    (gradient,) = torch.autograd.grad((outputs * weight).sum(), core.hidden_bias)
    for index in range(3 * H):
        sums = []
        for sign in (1.0, -1.0):
            with torch.no_grad():
                core.hidden_bias[index] += sign * 1e-6
                sums.append(float((torch.from_numpy(_expected(core, inputs.numpy(), reset.numpy(), state.numpy())) * weight).sum()))
                core.hidden_bias[index] -= sign * 1e-6
        assert float(gradient[index]) == pytest.approx((sums[0] - sums[1]) / 2e-6, rel=1e-5, abs=1e-6)


def test_a_state_that_is_not_finite_does_not_survive_a_reset() -> None:
    core = GRUCore(GRUSettings(size=H), INPUTS)
    outputs, _ = core(torch.randn(T, B, INPUTS), torch.ones(T, B, dtype=torch.bool), torch.full((B, H), float("nan")))
    assert outputs.isfinite().all()
