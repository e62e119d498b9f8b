"""The optimizer that the settings name, its schedule, and its state as named tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.rmsprop import RMSProp
from herd.algorithms.schedules import learning_rate_at, learning_rate_at_update, weight_decay_at_update
from herd.checkpoints.store import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch.nn import Parameter

    from herd.config.optimizers import OptimizerSettings

_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
SLOTS = {"rmsprop": {"second_moment", "velocity"}, "adam": _MOMENTS, "adamw": _MOMENTS}
"""Tensors kept for each parameter; ``step`` is a scalar."""


class Rates(NamedTuple):
    """The scheduled values of one update."""

    learning_rate: float
    weight_decay: float = 0.0
    """Weight decay; 0 if the optimizer has none."""


def new_optimizer(settings: OptimizerSettings, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer with all parameters in one group.

    The rates are set before each step. Any optimizer of torch will do; see `guarded_step`.
    """
    if settings.kind == "adamw":
        return torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )
    if settings.kind == "adam":
        betas = (settings.beta1, settings.beta2)
        return torch.optim.Adam(parameters, lr=settings.learning_rate, betas=betas, eps=settings.epsilon, fused=True)
    return RMSProp(parameters, lr=settings.learning_rate, decay=settings.decay, epsilon=settings.epsilon, momentum=settings.momentum)


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


def rates_at(settings: OptimizerSettings, *, env_frames: int, learner_updates: int) -> Rates:
    """Return the rates of the next update after ``learner_updates`` updates and ``env_frames`` consumed frames."""
    if settings.kind == "rmsprop" or settings.kind == "adam":  # noqa: PLR1714  mypy narrows by equality alone
        learning_rate = learning_rate_at(
            env_frames,
            learning_rate=settings.learning_rate,
            schedule=settings.schedule,
            schedule_env_frames=settings.schedule_env_frames,
        )
        return Rates(learning_rate)
    if settings.schedule == "constant":
        warm = min(1.0, (learner_updates + 1) / settings.warmup_updates) if settings.warmup_updates else 1.0
        return Rates(settings.learning_rate * warm, settings.weight_decay)
    learning_rate = learning_rate_at_update(
        learner_updates,
        learning_rate=settings.learning_rate,
        warmup_updates=settings.warmup_updates,
        schedule_updates=settings.schedule_updates,
    )
    decay = weight_decay_at_update(learner_updates, weight_decay=settings.weight_decay, schedule_updates=settings.schedule_updates)
    return Rates(learning_rate, decay)


def state_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    """Return the optimizer's state as flat named tensors: ``<parameter>/<slot>``."""
    return {
        f"{name}/{slot}": tensor.detach().cpu()
        for name, parameter in parameters.items()
        for slot, tensor in optimizer.state[parameter].items()
    }


def load_state_tensors(
    optimizer: torch.optim.Optimizer, kind: str, parameters: Mapping[str, Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state from `state_tensors`; it replaces the optimizer's state unless an error is raised.

    Raises:
        CheckpointError: a tensor belongs to no parameter, its shape differs, or it belongs to another kind of optimizer.
    """
    state: dict[Tensor, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition("/")
        parameter = parameters.get(name)
        if slot not in SLOTS[kind]:
            raise CheckpointError(f"optimizer state {key} does not belong to {kind}: optimizer.kind has changed")
        expected = torch.Size() if slot == "step" else None if parameter is None else parameter.shape
        if parameter is None or tensor.shape != expected:
            raise CheckpointError(f"optimizer state {key} {list(tensor.shape)} does not fit any parameter of this network")
        # Keep the parameter's memory order; otherwise the optimizer's fused operations fall back to slow ones.
        # Adam's count of steps is float32 on the parameters' device.
        memory = tensor.to(parameter.device, copy=True) if slot == "step" else torch.empty_like(parameter, requires_grad=False)
        state.setdefault(parameter, {})[slot] = memory if slot == "step" else memory.copy_(tensor)
    optimizer.state.clear()
    optimizer.state.update(state)
