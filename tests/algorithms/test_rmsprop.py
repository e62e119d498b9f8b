"""RMSProp against TensorFlow's definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.components.optimizers.rmsprop.rmsprop import RMSProp
from tests.oracles.rmsprop import rmsprop_path
from tests.oracles.vtrace import Array

torch.set_num_threads(1)

SHAPES = ((3, 4), (5,), (2, 2, 2))
NUM_UPDATES = 12
# A schedule, so that the effect of momentum under a changing learning rate is tested too.
LEARNING_RATES = [0.05 * (1.0 - update / NUM_UPDATES) for update in range(NUM_UPDATES)]


def starts_and_gradients() -> tuple[list[Array], list[list[Array]]]:
    rng = np.random.default_rng(31)
    starts = [rng.normal(size=shape) for shape in SHAPES]
    # Gradients lie on both sides of 1, where the second moment starts.
    return starts, [[2.0 * rng.normal(size=shape) for shape in SHAPES] for _ in range(NUM_UPDATES)]


def parameters_of(starts: list[Array]) -> list[torch.Tensor]:
    return [torch.tensor(start, requires_grad=True) for start in starts]


def update(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], gradients: list[Array], learning_rate: float) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    optimizer.param_groups[0]["lr"] = learning_rate
    optimizer.step()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 0.01, 1e-7])
def test_rmsprop_agrees_with_the_oracle(epsilon: float, momentum: float) -> None:
    starts, gradients = starts_and_gradients()
    parameters = parameters_of(starts)
    optimizer = RMSProp(parameters, lr=1.0, decay=0.9, epsilon=epsilon, momentum=momentum)
    paths = [
        rmsprop_path(start, [g[i] for g in gradients], LEARNING_RATES, decay=0.9, epsilon=epsilon, momentum=momentum)
        for i, start in enumerate(starts)
    ]
    for k in range(NUM_UPDATES):
        update(optimizer, parameters, gradients[k], LEARNING_RATES[k])
        for parameter, path in zip(parameters, paths, strict=True):
            np.testing.assert_allclose(parameter.detach().numpy(), path[k], rtol=1e-12, atol=1e-14)


def test_a_parameter_without_gradient_is_not_changed() -> None:
    used, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    optimizer = RMSProp([used, unused], lr=0.1, decay=0.9, epsilon=0.1)
    optimizer.step()
    used.grad = torch.ones(3)
    optimizer.step()
    # The second moment is 0.9 + 0.1 = 1, and epsilon is inside the root.
    torch.testing.assert_close(used.detach(), torch.full((3,), 1.0 - 0.1 / 1.1**0.5))
    assert torch.equal(unused, torch.ones(3))
    assert unused not in optimizer.state


def test_the_state_of_a_channels_last_weight_is_channels_last() -> None:
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last).requires_grad_()
    optimizer = RMSProp([weight], lr=0.1, decay=0.9, epsilon=0.1)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert optimizer.state[weight]["second_moment"].is_contiguous(memory_format=torch.channels_last)
