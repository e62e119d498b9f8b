"""Muon (https://kellerjordan.github.io/posts/muon), with Adam for parameters that are no matrices.

``torch.optim.Muon`` takes no kernels of convolutions and no ``found_inf``, and leaves the other parameters to a second optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.optim import Adam

from herd.components.optimizers.muon import is_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.nn import Parameter
    from torch.optim.optimizer import ParamsT

    from herd.components.optimizers.muon import MuonSettings

ELEMENT_SIZE = 0.2
"""Root mean square of the elements of a step, in learning rates: about that of Adam's steps (arXiv:2502.16982, section 2.2)."""
NUM_STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial ``a s + b s^3 + c s^5`` that each step applies to the singular values s; five times, it takes 0.01 to 1 to about 1."""


class Muon(torch.optim.Optimizer):
    """Momentum whose steps have singular values of about 1, so that a direction in which all gradients agree does not outweigh the others.

    For every convolution and every large dense layer with gradient g, as a matrix of outputs x inputs::

        momentum  <- mu * momentum + (1 - mu) * g                                    (starts at 0)
        step      <- U V^T of the singular value decomposition U S V^T of  mu * momentum + (1 - mu) * g
        parameter <- parameter - lr * 0.2 * sqrt(max(outputs, inputs)) * step

    Steps are computed by `orthogonal`. All other parameters have Adam. Like torch's fused optimizers it reads ``found_inf``, float32 [] on
    the parameters' device: where it is 1, parameters and state stay as they are.
    """

    found_inf: Tensor | None = None
    _step_supports_amp_scaling = True
    """torch's name for optimizers that read ``found_inf``."""

    def __init__(self, params: ParamsT, *, lr: float, momentum: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps})
        parameters = self.param_groups[0]["params"]
        self._matrices = [own for own in parameters if is_matrix(own.shape)]
        matrices = set(self._matrices)
        self._adam = Adam([own for own in parameters if own not in matrices], lr=lr, betas=betas, eps=eps, fused=True)
        self._adam.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  the learner has no closure
        """One update from the parameters' ``grad``; parameters without one are left alone."""
        group = self.param_groups[0]
        self._adam.param_groups[0].update({name: group[name] for name in ("lr", "betas", "eps")})
        self._adam.found_inf = self.found_inf  # type: ignore[attr-defined]
        self._adam.step()
        for parameter in self._matrices:
            if parameter.grad is not None:
                self._step_matrix(parameter, parameter.grad, group["lr"], group["momentum"])

    def _step_matrix(self, parameter: Tensor, gradient: Tensor, lr: float, decay: float) -> None:
        taken = torch.ones((), device=parameter.device) if self.found_inf is None else 1.0 - self.found_inf
        gradient = gradient.masked_fill(taken == 0, 0.0)  # 0 times what is not finite is not 0
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(gradient, (1.0 - decay) * taken)
        matrix = gradient.lerp(momentum, decay).flatten(1)
        size = lr * ELEMENT_SIZE * max(matrix.shape) ** 0.5
        parameter.sub_(orthogonal(matrix).view_as(parameter) * (size * taken))


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about ``U V^T`` of the singular value decomposition ``U S V^T`` of [M, N], by Newton-Schulz steps.

    Each step multiplies X, the matrix on its longer side, by a polynomial of ``X X^T``. These polynomials commute, so they are multiplied
    first: of [256, 2592] that takes two fifths of the operations, and in float32 the directions with the smallest singular values survive.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix
    wide = wide / (wide.norm() + 1e-7)  # no singular value is above 1
    square = wide @ wide.T
    polynomial = factor = _polynomial(square)
    for _ in range(NUM_STEPS - 1):
        square = polynomial @ square @ polynomial
        polynomial = _polynomial(square)
        factor = polynomial @ factor
    step: Tensor = factor @ wide
    return step.T if is_tall else step


def _polynomial(square: Tensor) -> Tensor:
    """``a I + b S + c S^2``."""
    a, b, c = COEFFICIENTS
    polynomial = torch.addmm(square, square, square, beta=b, alpha=c)
    polynomial.diagonal().add_(a)
    return polynomial


def muon(settings: MuonSettings, parameters: Iterable[Parameter]) -> Muon:
    """Return the optimizer."""
    betas = (settings.beta1, settings.beta2)
    return Muon(parameters, lr=settings.learning_rate, momentum=settings.momentum, betas=betas, eps=settings.epsilon)
