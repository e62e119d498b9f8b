"""The gated transformer against float64 steps by the equations of arXiv:1910.06764 and arXiv:1901.02860, one row at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from herd.components.cores.gtrxl import GTrXLSettings
from herd.components.cores.gtrxl.gtrxl import GTrXLCore
from tests.oracles.networks_layers import Array, sigmoid

torch.set_num_threads(1)
T, B, INPUTS, D, L, G, M = 9, 3, 5, 8, 2, 2, 4
SETTINGS = GTrXLSettings(size=D, layers=L, heads=G, memory=M)


def _numbers(module: nn.Module) -> dict[str, Array]:
    return {name: tensor.detach().double().numpy() for name, tensor in module.state_dict().items()}


class Oracle:
    """One unroll; ``seen`` has what each block got at every earlier step of the episode, however long ago."""

    def __init__(self, core: GTrXLCore) -> None:
        self.p = _numbers(core)
        self.seen: list[list[Array]] = [[] for _ in range(L)]

    def dense(self, name: str, x: Array) -> Array:
        result: Array = self.p[f"{name}.weight"] @ x + self.p[f"{name}.bias"]
        return result

    def norm(self, name: str, x: Array) -> Array:
        result: Array = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]
        return result

    def gate(self, name: str, x: Array, y: Array) -> Array:
        wr, wz, wg = np.split(self.p[f"{name}.of_new"], 3)
        ur, uz, ug = np.split(self.p[f"{name}.of_old"], 3)
        r, z = sigmoid(wr @ y + ur @ x), sigmoid(wz @ y + uz @ x - self.p[f"{name}.bias"])
        return (1.0 - z) * x + z * np.tanh(wg @ y + ug @ (r * x))

    def step(self, inputs: Array, *, reset: bool) -> Array:
        if reset:
            self.seen = [[] for _ in range(L)]
        x = self.dense("embedding", inputs)
        for number, seen in enumerate(self.seen):
            at = f"blocks.{number}"
            seen.append(x)
            window = seen[-(M + 1) :]
            attended = np.zeros(D)
            normed = [self.norm(f"{at}.norm_attention", step) for step in window]
            for head in range(G):
                own = slice(head * D // G, (head + 1) * D // G)
                query = self.dense(f"{at}.query", normed[-1])[own]
                scores = []
                for distance, step in zip(reversed(range(len(window))), normed, strict=True):
                    rates = [10_000.0 ** (-2 * i / D) for i in range(D // 2)]
                    wave = np.array([math.sin(distance * rate) for rate in rates] + [math.cos(distance * rate) for rate in rates])
                    key, position = self.dense(f"{at}.key", step)[own], self.dense(f"{at}.position", wave)[own]
                    score = (query + self.p[f"{at}.content_bias"][head]) @ key + (query + self.p[f"{at}.position_bias"][head]) @ position
                    scores.append(score / math.sqrt(D / G))
                weights = np.exp(scores) / np.exp(scores).sum()
                attended[own] = sum(w * self.dense(f"{at}.value", step)[own] for w, step in zip(weights, normed, strict=True))
            x = self.gate(f"{at}.gate_attention", x, np.maximum(self.dense(f"{at}.attended", attended), 0.0))
            hidden = np.maximum(self.dense(f"{at}.hidden", self.norm(f"{at}.norm_mlp", x)), 0.0)
            x = self.gate(f"{at}.gate_mlp", x, np.maximum(self.dense(f"{at}.out", hidden), 0.0))
        return x


def _case() -> tuple[GTrXLCore, torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    core = GTrXLCore(SETTINGS, INPUTS).double()
    for name, parameter in core.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[0, 0] = reset[3, 0] = reset[4, 0] = reset[7, 1] = True  # the third unroll goes on from an episode before
    return core, torch.randn(T, B, INPUTS, dtype=torch.float64), reset


@pytest.mark.parametrize("lengths", [(T,), (1,) * T, (2, 6, 1)], ids=str)
def test_outputs_agree_with_the_equations_however_the_rows_are_cut(lengths: tuple[int, ...]) -> None:
    core, inputs, reset = _case()
    state = core.initial_state(B).double()
    parts, start = [], 0
    for length in lengths:
        rows = slice(start, start + length)
        outputs, state = core(inputs[rows], reset[rows], state)
        parts.append(outputs)
        start += length
    found = torch.cat(parts).detach().numpy()
    for unroll in range(B):
        oracle = Oracle(core)
        expected = [oracle.step(inputs[t, unroll].numpy(), reset=bool(reset[t, unroll])) for t in range(T)]
        np.testing.assert_allclose(found[:, unroll], expected, rtol=1e-6)  # the waves are float32


def test_the_state_before_the_tail_is_that_of_a_shorter_run() -> None:
    core, inputs, reset = _case()
    _, left = core(inputs, reset, core.initial_state(B).double(), num_tail_rows=4)
    _, expected = core(inputs[:-4], reset[:-4], core.initial_state(B).double())
    torch.testing.assert_close(left, expected)
    assert left[:, -1].tolist() == [1, M, M]
    assert not left.requires_grad


def test_no_gradient_and_no_broken_number_crosses_a_reset() -> None:
    core, inputs, reset = _case()
    inputs.requires_grad_()
    outputs, _ = core(inputs, reset, torch.full((B, SETTINGS.state_size()), math.nan, dtype=torch.float64))
    assert outputs[:, 0].isfinite().all()
    (gradient,) = torch.autograd.grad(outputs[5:, 0].sum(), inputs)
    assert not gradient[:4, 0].any()
    assert gradient[4:, 0].any()


def test_blocks_begin_close_to_the_identity() -> None:
    torch.manual_seed(3)
    core = GTrXLCore(GTrXLSettings(), 256)
    inputs, reset = torch.randn(T, B, 256), torch.zeros(T, B, dtype=torch.bool)
    outputs, _ = core(inputs, reset, core.initial_state(B))
    assert torch.nn.functional.cosine_similarity(outputs, core.embedding(inputs), dim=-1).mean() > 0.9
