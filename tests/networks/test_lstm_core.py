"""The recurrent core against float64 steps, with episodes that start anywhere in the unroll."""

from __future__ import annotations

import numpy as np
import torch

from herd.networks.recurrent import LSTMCore
from tests.oracles.networks_layers import lstm_with_resets

torch.set_num_threads(1)
T, B, INPUTS, H = 7, 3, 5, 4


def _case() -> tuple[LSTMCore, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    core = LSTMCore(INPUTS, H)
    torch.nn.init.normal_(core.bias)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[0, 0] = reset[3, 0] = reset[6, 1] = True  # at the first, a middle and the last row; one unroll without
    return core, torch.randn(T, B, INPUTS), reset, torch.randn(B, 2, H)


def test_outputs_and_state_match_the_definition() -> None:
    core, inputs, reset, state = _case()
    outputs, final = core(inputs, reset, state)
    w, u, bias = (p.detach().double().numpy() for p in (core.input_weight, core.hidden_weight, core.bias))
    expected, expected_final = lstm_with_resets(inputs.double().numpy(), reset.numpy(), state.double().numpy(), (w, u, bias))
    np.testing.assert_allclose(outputs.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(final.detach().numpy(), expected_final, rtol=1e-5, atol=1e-6)


def test_a_reset_inside_the_unroll_equals_two_separate_runs() -> None:
    core, inputs, reset, state = _case()
    outputs, final = core(inputs[:, :1], reset[:, :1], state[:1])
    never = torch.zeros(4, 1, dtype=torch.bool)
    before, _ = core(inputs[:3, :1], never[:3], torch.zeros(1, 2, H))
    after, after_final = core(inputs[3:, :1], never, torch.zeros(1, 2, H))
    torch.testing.assert_close(outputs, torch.cat([before, after]))
    torch.testing.assert_close(final, after_final)


def test_no_gradient_flows_back_across_a_reset() -> None:
    core, inputs, reset, state = _case()
    inputs.requires_grad_()
    outputs, _ = core(inputs, reset, state)
    (gradient,) = torch.autograd.grad(outputs[3:, 0].sum(), inputs)
    assert not gradient[:3, 0].any()
    assert gradient[3:, 0].abs().sum() > 0


def test_a_reset_also_clears_a_state_that_is_not_finite() -> None:
    core, inputs, reset, state = _case()
    state[0] = float("nan")
    outputs, _ = core(inputs, reset, state)
    assert outputs[:, 0].isfinite().all()


def test_the_forget_gate_starts_open() -> None:
    core = LSTMCore(INPUTS, H)
    assert core.bias.view(4, H).sum(dim=1).tolist() == [0.0, H, 0.0, 0.0]
