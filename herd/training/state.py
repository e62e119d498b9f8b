"""The learner's state as parts, each of them one file of a checkpoint; and a step that moves none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from herd.run.checkpoints import CheckpointError
from herd.run.tensors import load_into

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn
    from torch.nn import Parameter

    from herd.components.optimizers import OptimizerSettings
    from herd.components.value_scaling.api import Statistics


class Stateful(Protocol):
    """A part of the learner's state."""

    def tensors(self) -> dict[str, Tensor]:
        """Return it on the CPU; without tensors, a checkpoint has no file of it."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `tensors` returned, from any device: all of it or nothing.

        Raises:
            CheckpointError: it belongs to another run; one line.
        """


class ModuleState:
    """The tensors of the agent, or of an auxiliary head."""

    def __init__(self, module: nn.Module | None, changed: str = "") -> None:
        """``changed``: what to say where a checkpoint has the module and this run has none, or the reverse."""
        self._module = module
        self._changed = changed

    def tensors(self) -> dict[str, Tensor]:
        """See `Stateful`."""
        return {} if self._module is None else {name: tensor.detach().cpu() for name, tensor in self._module.state_dict().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Stateful`."""
        if self._changed and bool(tensors) != (self._module is not None):
            raise CheckpointError(self._changed)
        if self._module is not None:
            load_into(self._module, tensors)


class OptimizerState:
    """The optimizer's state as flat tensors, ``<parameter>/<slot>``; empty before the first update."""

    def __init__(self, optimizer: torch.optim.Optimizer, settings: OptimizerSettings, parameters: Mapping[str, Parameter]) -> None:
        """``parameters`` by the names that the state's tensors have."""
        self._optimizer = optimizer
        self._settings = settings
        self._parameters = parameters

    def tensors(self) -> dict[str, Tensor]:
        """See `Stateful`."""
        return {
            f"{name}/{slot}": tensor.detach().cpu()
            for name, parameter in self._parameters.items()
            for slot, tensor in self._optimizer.state[parameter].items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Stateful`."""
        settings = self._settings
        state: dict[Tensor, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            name, _, slot = key.rpartition("/")
            parameter = self._parameters.get(name)
            if parameter is None or tensor.shape not in {torch.Size(), parameter.shape}:
                raise CheckpointError(f"optimizer state {key} {list(tensor.shape)} does not fit any parameter of this network")
            slots = settings.slots_of(parameter.shape)
            if slots is not None and slot not in slots:
                raise CheckpointError(f"optimizer state {key} does not belong to {settings.kind}: optimizer.kind has changed")
            if tensor.dim():
                # Keep the parameter's memory order; otherwise the optimizer's fused operations fall back to slow ones.
                memory = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
            else:
                memory = tensor.to(parameter.device, copy=True)  # Adam's count of steps: float32 on the parameters' device
            state.setdefault(parameter, {})[slot] = memory
        self._optimizer.state.clear()
        self._optimizer.state.update(state)


class ValueStatistics:
    """The statistics of the value scaling; the same on every shard."""

    def __init__(self, statistics: Statistics, device: torch.device) -> None:
        self.current = statistics
        """On the device."""
        self._device = device

    def tensors(self) -> dict[str, Tensor]:
        """See `Stateful`."""
        return {name: tensor.cpu() for name, tensor in self.current.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Stateful`."""
        if {name: tensor.shape for name, tensor in tensors.items()} != {name: own.shape for name, own in self.current.items()}:
            raise CheckpointError("the statistics of the values do not fit: value_scaling.kind has changed")
        self.current = {name: tensor.to(self._device, copy=True) for name, tensor in tensors.items()}


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
