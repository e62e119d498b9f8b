"""RMSProp against TensorFlow's definition, and against torch's slightly different optimiser of the same name."""

from __future__ import annotations

import copy

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


@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_torch_rmsprop_gives_other_updates(epsilon: float) -> None:
    starts, gradients = starts_and_gradients()
    ours, theirs = parameters_of(starts), parameters_of(starts)
    ours_optimizer = RMSProp(ours, lr=0.05, decay=0.99, epsilon=epsilon)
    theirs_optimizer = torch.optim.RMSprop(theirs, lr=0.05, alpha=0.99, eps=epsilon)
    update(ours_optimizer, ours, gradients[0], 0.05)
    update(theirs_optimizer, theirs, gradients[0], 0.05)
    our_step = np.abs(ours[0].detach().numpy() - starts[0])
    their_step = np.abs(theirs[0].detach().numpy() - starts[0])
    # In the first update with gradient g, ours moves by about lr |g|, torch's by lr |g| / (0.1 |g| + eps), which is up to 10 lr.
    large = np.abs(gradients[0][0]) > 0.5
    assert (their_step[large] > 2.0 * our_step[large]).all()

    # The position of epsilon alone also makes a difference: give both the same second moments.
    for parameter in theirs:
        theirs_optimizer.state[parameter]["square_avg"].fill_(0.04)
    for parameter in ours:
        ours_optimizer.state[parameter]["second_moment"].fill_(0.04)
    before = ours[0].detach().numpy().copy(), theirs[0].detach().numpy().copy()
    for optimizer, parameters in ((ours_optimizer, ours), (theirs_optimizer, theirs)):
        update(optimizer, parameters, [np.full(shape, 1e-6) for shape in SHAPES], 0.05)
    ratio = (ours[0].detach().numpy() - before[0]) / (theirs[0].detach().numpy() - before[1])
    v = 0.99 * 0.04
    np.testing.assert_allclose(ratio, (np.sqrt(v) + epsilon) / np.sqrt(v + epsilon), rtol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_restored_optimiser_continues_bit_for_bit(momentum: float) -> None:
    starts, gradients = starts_and_gradients()
    parameters = parameters_of(starts)
    optimizer = RMSProp(parameters, lr=0.05, decay=0.9, epsilon=0.01, momentum=momentum)
    for k in range(4):
        update(optimizer, parameters, gradients[k], LEARNING_RATES[k])
    restored_parameters = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    restored = RMSProp(restored_parameters, lr=9.0, decay=0.5, epsilon=5.0, momentum=momentum)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert restored.param_groups[0]["lr"] == LEARNING_RATES[3]
    for k in range(4, NUM_UPDATES):
        update(optimizer, parameters, gradients[k], LEARNING_RATES[k])
        update(restored, restored_parameters, gradients[k], LEARNING_RATES[k])
    for parameter, again in zip(parameters, restored_parameters, strict=True):
        assert torch.equal(parameter, again)
    slots = {"second_moment", "velocity"} if momentum else {"second_moment"}
    assert all(set(state) == slots for state in restored.state_dict()["state"].values())


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


def test_channels_last_and_closures_are_supported() -> None:
    weight = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last).requires_grad_()
    start = weight.detach().clone()
    optimizer = RMSProp([weight], lr=0.1, decay=0.9, epsilon=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == pytest.approx(float(start.square().sum()))
    gradient = 2.0 * start
    torch.testing.assert_close(weight.detach(), start - 0.1 * gradient / (0.9 + 0.1 * gradient.square() + 0.1).sqrt())
    assert optimizer.state[weight]["second_moment"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("name", "bad"), [("lr", -1.0), ("lr", float("nan")), ("decay", 1.1), ("epsilon", 0.0), ("momentum", -0.1)])
def test_a_hyperparameter_out_of_range_is_refused_by_name(name: str, bad: float) -> None:
    good = {"lr": 0.1, "decay": 0.9, "epsilon": 0.1, "momentum": 0.0}
    with pytest.raises(ValueError, match=name):
        RMSProp([torch.ones(1, requires_grad=True)], **(good | {name: bad}))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_found_inf_skips_the_step(momentum: float) -> None:
    starts, gradients = starts_and_gradients()
    plain, skipping = parameters_of(starts), parameters_of(starts)
    expected, found = (RMSProp(parameters, lr=1.0, decay=0.9, epsilon=0.1, momentum=momentum) for parameters in (plain, skipping))
    for k, skips in enumerate([0.0, 1.0, 0.0, 1.0]):
        found.found_inf = torch.tensor(skips)
        given = [gradient.copy() for gradient in gradients[k]]
        if skips:
            given[0][0], given[0][1] = np.nan, np.inf
        else:
            update(expected, plain, gradients[k], 0.05)
        update(found, skipping, given, 0.05)
        for one, other in zip(plain, skipping, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-9)
            for slot, tensor in expected.state[one].items():
                torch.testing.assert_close(found.state[other][slot], tensor, rtol=1e-6, atol=1e-9)
