"""RMSProp as TensorFlow 1 defines it (``ApplyRMSProp``), the optimiser of IMPALA (arXiv:1802.01561).

``torch.optim.RMSprop`` is another one: its second moment starts at 0 and its epsilon stands outside the root. With the paper's
epsilons of 0.1 and 0.01 that is a different step size, from the first update on.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.nn import Parameter
    from torch.optim.optimizer import ParamsT

    from herd.components.optimizers.rmsprop import RMSPropSettings


class RMSProp(torch.optim.Optimizer):
    """Gradient descent rescaled by a running second moment.

    For every parameter with gradient g::

        second_moment <- decay * second_moment + (1 - decay) * g^2          (starts at 1)
        velocity      <- momentum * velocity + lr * g / sqrt(second_moment + epsilon)          (starts at 0)
        parameter     <- parameter - velocity

    With ``momentum`` 0 no velocity is kept. The learning rate is ``param_groups[i]["lr"]``, to be set between steps. As in TensorFlow it
    scales what enters the velocity, so that a change of the rate does not touch what is already there.

    Like torch's fused optimizers it reads ``found_inf``, float32 [] on the parameters' device: where it is 1, gradients are set to 0, and
    parameters and state stay as they are.
    """

    found_inf: Tensor | None = None
    _step_supports_amp_scaling = True
    """torch's name for optimizers that read ``found_inf``."""

    # Without torch's decorators, whose only effect here is to import torch._dynamo: a second and a half of each learner's start.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    def __init__(self, params: ParamsT, *, lr: float, decay: float, epsilon: float, momentum: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "epsilon": epsilon, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  the learner has no closure
        """One update from the parameters' ``grad``; parameters without one are left alone."""
        for group in self.param_groups:
            self._step_group(group)

    def _step_group(self, group: dict[str, Any]) -> None:
        parameters: list[Tensor] = [parameter for parameter in group["params"] if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not parameters:
            return
        lr, decay, momentum = group["lr"], group["decay"], group["momentum"]
        taken = None if self.found_inf is None else 1.0 - self.found_inf
        if taken is not None:
            for gradient in gradients:
                gradient.masked_fill_(taken == 0, 0.0)  # 0 times what is not finite is not 0
            decay = torch.where(taken > 0, decay, 1.0)

        second_moments = self._state_of(parameters, "second_moment", torch.ones_like)
        # _foreach: one call for all parameters, which matters for networks of many small ones.
        torch._foreach_mul_(second_moments, decay)
        torch._foreach_addcmul_(second_moments, gradients, gradients, 1.0 - group["decay"])
        roots = torch._foreach_add(second_moments, group["epsilon"])
        torch._foreach_sqrt_(roots)
        if momentum == 0.0:
            torch._foreach_addcdiv_(parameters, gradients, roots, -lr)
            return
        velocities = self._state_of(parameters, "velocity", torch.zeros_like)
        torch._foreach_mul_(velocities, momentum if taken is None else torch.where(taken > 0, momentum, 1.0))
        torch._foreach_addcdiv_(velocities, gradients, roots, lr)
        torch._foreach_sub_(parameters, velocities if taken is None else torch._foreach_mul(velocities, taken))

    def _state_of(self, parameters: Iterable[Tensor], name: str, start: Callable[[Tensor], Tensor]) -> list[Tensor]:
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = start(parameter)
        return [self.state[parameter][name] for parameter in parameters]


def rmsprop(settings: RMSPropSettings, parameters: Iterable[Parameter]) -> RMSProp:
    """Return the optimizer."""
    return RMSProp(parameters, lr=settings.learning_rate, decay=settings.decay, epsilon=settings.epsilon, momentum=settings.momentum)
