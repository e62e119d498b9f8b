"""A step of any optimizer, and its state as named tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from herd.run.checkpoints.manifest import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.nn import Parameter

    from herd.components.optimizers import OptimizerSettings


@torch.no_grad()
def guarded_step(optimizer: torch.optim.Optimizer, is_finite: Tensor) -> None:
    """Do a step if ``is_finite``, bool [] on the parameters' device. Otherwise neither parameters nor state change; the host does not wait.

    torch's fused optimizers and `RMSProp` skip a step by themselves where ``found_inf`` is 1. What others have changed is put back, from a
    copy. State that the first step creates is that of a gradient of 0, and state on the host, such as the count of steps of some optimizers
    on a GPU, goes on.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = is_finite.logical_not().float()  # type: ignore[attr-defined]
        optimizer.step()
        return
    parameters = [own for group in optimizer.param_groups for own in group["params"] if own.grad is not None]
    for parameter in parameters:
        parameter.grad.masked_fill_(~is_finite, 0.0)
    state = [tensor for own in parameters for tensor in optimizer.state.get(own, {}).values() if isinstance(tensor, Tensor)]
    changed = [tensor for tensor in [*parameters, *state] if tensor.device == is_finite.device]
    before = [tensor.clone() for tensor in changed]
    optimizer.step()
    for tensor, old in zip(changed, before, strict=True):
        tensor.copy_(torch.where(is_finite, tensor, old))


def state_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    """Return the optimizer's state as flat named tensors: ``<parameter>/<slot>``."""
    return {
        f"{name}/{slot}": tensor.detach().cpu()
        for name, parameter in parameters.items()
        for slot, tensor in optimizer.state[parameter].items()
    }


def load_state_tensors(
    optimizer: torch.optim.Optimizer, settings: OptimizerSettings, parameters: Mapping[str, Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state from `state_tensors`; it replaces the optimizer's state unless an error is raised.

    Raises:
        CheckpointError: a tensor belongs to no parameter, its shape differs, or it belongs to another kind of optimizer.
    """
    state: dict[Tensor, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition("/")
        parameter = parameters.get(name)
        if settings.slots is not None and slot not in settings.slots:
            raise CheckpointError(f"optimizer state {key} does not belong to {settings.kind}: optimizer.kind has changed")
        if parameter is None or tensor.shape not in {torch.Size(), parameter.shape}:
            raise CheckpointError(f"optimizer state {key} {list(tensor.shape)} does not fit any parameter of this network")
        # Keep the parameter's memory order; otherwise the optimizer's fused operations fall back to slow ones.
        # Adam's count of steps is float32 on the parameters' device.
        is_number = not tensor.dim()
        memory = tensor.to(parameter.device, copy=True) if is_number else torch.empty_like(parameter, requires_grad=False).copy_(tensor)
        state.setdefault(parameter, {})[slot] = memory
    optimizer.state.clear()
    optimizer.state.update(state)
