"""The recurrent core against float64 steps, with episodes that start anywhere in the unroll."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from herd.components.cores.api import Core
from herd.components.cores.lstm import LSTMSettings
from herd.components.cores.lstm.lstm import MIN_FUSED_ROWS, LSTMCore
from tests.oracles.networks_layers import lstm_with_resets

torch.set_num_threads(1)
B, INPUTS, H = 3, 5, 4
FUSED, SHORT = MIN_FUSED_ROWS, MIN_FUSED_ROWS - 1
MIDDLE = FUSED + 2 * SHORT  # two spans before it are too short to fuse
T = MIDDLE + FUSED + 2

knowledge = pytest.mark.parametrize("is_known", [True, False], ids=["the host knows the resets", "row by row"])


def _case() -> tuple[LSTMCore, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    core = LSTMCore(LSTMSettings(size=H), INPUTS)
    torch.nn.init.normal_(core.bias)
    reset = torch.zeros(T, B, dtype=torch.bool)
    for row in (0, FUSED, FUSED + SHORT, MIDDLE):
        reset[row, 0] = True
    reset[T - 1, 1] = True  # the third unroll has no reset
    return core, torch.randn(T, B, INPUTS), reset, torch.randn(B, 2 * H)


def _rows(reset: torch.Tensor, *, is_known: bool) -> list[int] | None:
    return [row for row in range(len(reset)) if reset[row].any()] if is_known else None


@knowledge
@pytest.mark.parametrize("num_tail_rows", [0, 1, 4, T - 2, T])
def test_outputs_and_states_agree_with_the_oracle(num_tail_rows: int, is_known: bool) -> None:
    core, inputs, reset, state = _case()
    outputs, left = core(inputs, reset, state, num_tail_rows=num_tail_rows, reset_rows=_rows(reset, is_known=is_known))
    w, u, bias = (p.detach().double().numpy() for p in (core.input_weight, core.hidden_weight, core.bias))
    numbers = inputs.double().numpy(), reset.numpy(), state.double().numpy()
    expected, _ = lstm_with_resets(*numbers, (w, u, bias))
    np.testing.assert_allclose(outputs.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    done = T - num_tail_rows
    _, expected_left = lstm_with_resets(numbers[0][:done], numbers[1][:done], numbers[2], (w, u, bias))
    np.testing.assert_allclose(left.detach().numpy(), expected_left, rtol=1e-5, atol=1e-6)


def test_fused_and_stepwise_gradients_agree() -> None:
    core, inputs, reset, state = _case()
    inputs.requires_grad_()
    leaves = (inputs, *core.parameters())
    gradients = []
    for is_known in (True, False):
        outputs, _ = core(inputs, reset, state, num_tail_rows=1, reset_rows=_rows(reset, is_known=is_known))
        gradients.append(torch.autograd.grad((outputs * torch.arange(T * B * H).view(T, B, H)).sum(), leaves))
    for fused, stepped in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, stepped, rtol=1e-5, atol=1e-4)


def test_long_segments_use_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    core, inputs, reset, state = _case()
    lengths: list[int] = []
    fused: Any = torch.lstm

    def watched(rows: torch.Tensor, *arguments: Any) -> Any:
        lengths.append(len(rows))
        return fused(rows, *arguments)

    monkeypatch.setattr(torch, "lstm", watched)
    core(inputs, reset, state, num_tail_rows=1, reset_rows=_rows(reset, is_known=True))
    assert lengths == [FUSED, FUSED + 1]
    core(inputs, reset, state, num_tail_rows=1)
    assert len(lengths) == 2


@knowledge
def test_no_gradient_flows_back_across_a_reset(is_known: bool) -> None:
    core, inputs, reset, state = _case()
    inputs.requires_grad_()
    outputs, _ = core(inputs, reset, state, reset_rows=_rows(reset, is_known=is_known))
    (gradient,) = torch.autograd.grad(outputs[MIDDLE:, 0].sum(), inputs)
    assert not gradient[:MIDDLE, 0].any()
    assert gradient[MIDDLE:, 0].abs().sum() > 0


@knowledge
def test_a_reset_also_clears_a_state_that_is_not_finite(is_known: bool) -> None:
    core, inputs, reset, state = _case()
    state[0] = float("nan")
    outputs, _ = core(inputs, reset, state, reset_rows=_rows(reset, is_known=is_known))
    assert outputs[:, 0].isfinite().all()


def test_the_forget_gate_starts_open() -> None:
    core = LSTMCore(LSTMSettings(size=H), INPUTS)
    assert core.bias.view(4, H).sum(dim=1).tolist() == [0.0, H, 0.0, 0.0]


class Counter(Core):
    """Counts rows from a number that is not zero, and adds up its inputs."""

    def __init__(self) -> None:
        super().__init__(num_features=1, state_size=2)

    def initial_state(self, batch: int) -> torch.Tensor:
        return torch.tensor([[7.0, 0.0]]).expand(batch, 2)

    def step(self, inputs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        after = torch.stack([state[:, 0] + 1.0, state[:, 1] + inputs[:, 0]], dim=1)
        return after.sum(dim=1, keepdim=True), after


@knowledge
def test_a_core_of_single_rows_is_reset_to_its_own_initial_state(is_known: bool) -> None:
    reset = torch.tensor([[False, False], [False, True], [False, False]])
    inputs, state = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]]), torch.tensor([[0.0, 10.0], [0.0, float("nan")]])
    for num_tail_rows, expected in enumerate([[[3.0, 19.0], [9.0, 10.0]], [[2.0, 14.0], [8.0, 4.0]]]):
        outputs, after = Counter()(inputs, reset, state, num_tail_rows=num_tail_rows, reset_rows=_rows(reset, is_known=is_known))
        assert outputs[..., 0].tolist()[1:] == [[16.0, 12.0], [22.0, 19.0]]
        assert after.tolist() == expected
    assert Counter()(inputs, reset, state, num_tail_rows=3)[1] is state
