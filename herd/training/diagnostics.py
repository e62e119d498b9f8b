"""Diagnostics of learning from an update's batch: values, importance ratios, change of the policy, and the units of every layer.

They run the network over the batch once more before the optimizer's step and once more after it, without gradients. With the shallow
network on a CPU this takes the time of 1.2 to 1.4 updates, so it is done only once in many updates.

Legend: T rows, B unrolls, F units of a layer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from herd.networks.layers import Rectifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.algorithms.distributions import Applied
    from herd.components.losses.api import Forward, Loss, LossOutput
    from herd.training.batch import TrainBatch
    from herd.training.parallel import Shards

_FLAT = 1e-12
"""Targets whose variance is below this share of their mean square count as constant; they have no explained variance."""


NUM_SUMS = 8
"""Number of sums that `_fit` reads."""


class LayerUnits(NamedTuple):
    """The units of one layer with a ReLU, over this shard's part of the batch."""

    kind: Literal["filters", "units"]
    """Number of units: filters of a convolution, over all positions of the image, or units of a dense layer."""
    total: int
    dead: int
    """Units with output 0 everywhere. They have no gradient and recover only if an earlier layer changes."""
    always_on: int
    """Units with output above 0 everywhere; they are linear."""


class Health(NamedTuple):
    """The diagnostics of one update."""

    update_kl: float
    """Nats, mean over the rows: KL(policy before the update || policy after it)."""
    effective_sample_size: float
    """(sum rho)^2 / (n sum rho^2) of the importance ratios rho = pi/mu before clipping, in (0, 1]: the effective share of rows under plain
    importance sampling."""
    explained_variance: float | None
    """1 - Var(target - value) / Var(target), before the update: 1 for perfect values, 0 for values no better than a constant. None: the
    loss has no targets, or they are constant."""
    layers: tuple[LayerUnits, ...] = ()
    """Layers from first to last; empty if the torso has no layers of Herd."""

    def as_json(self) -> dict[str, Any]:
        """Return the values for metrics.jsonl and report.json."""
        return {**self._asdict(), "layers": [layer._asdict() for layer in self.layers]}


class Seen(NamedTuple):
    """Diagnostics of one update, with the numbers still on the device."""

    numbers: Tensor
    """float64 [N]: the policy's change, the sums that `_fit` reads, and two counts for each layer."""
    layers: tuple[tuple[Literal["filters", "units"], int], ...]
    """Kind and size of each layer."""

    def health(self, numbers: Sequence[float]) -> Health | None:
        """Return the diagnostics from ``numbers``, which the host has read; None if there were no rows."""
        update_kl, sums, counts = numbers[0], numbers[1 : 1 + NUM_SUMS], numbers[1 + NUM_SUMS :]
        effective_sample_size, explained_variance = _fit(sums)
        if effective_sample_size is None:
            return None
        layers = tuple(
            LayerUnits(kind, total, int(dead), int(always_on))
            for (kind, total), dead, always_on in zip(self.layers, counts[::2], counts[1::2], strict=True)
        )
        return Health(update_kl, effective_sample_size, explained_variance, layers)


class Diagnostics:
    """The measurement of one update: created before the optimizer's step, completed after it. All shards take part."""

    @torch.no_grad()
    def __init__(
        self, parts: Sequence[TrainBatch], forward: Callable[[TrainBatch], Forward], *, agent: nn.Module, loss: Loss, shards: Shards
    ) -> None:
        """Measure before the step; ``loss`` has the targets of the values."""
        self._parts = parts
        self._forward = forward
        self._agent = agent
        self._shards = shards
        self._before: list[Applied] = []
        self._sums = torch.zeros(NUM_SUMS, dtype=torch.float64, device=parts[0].rewards.device)
        for part in parts:
            seen = forward(part)
            self._before.append(seen.target)
            self._sums += _fit_sums(seen, loss(seen))

    @torch.no_grad()
    def after(self) -> Seen:
        """Measure after the step and return the result."""
        moved = torch.zeros(2, dtype=torch.float64, device=self._sums.device)
        with watched_layers(self._agent, moved.device) as watched:
            for part, before in zip(self._parts, self._before, strict=True):
                divergence = before.kl(self._forward(part).target)
                moved[0] += part.trained.sum()
                moved[1] += divergence.masked_fill(~part.trained, 0.0).sum()
        rows, kl = self._shards.all_reduce_sum(moved)
        update_kl = kl.clamp(min=0.0) / rows.clamp(min=1.0)
        counts = [each.counts().double() for each in watched]
        numbers = torch.cat([update_kl.unsqueeze(0), self._shards.all_reduce_sum(self._sums), *counts])
        return Seen(numbers, tuple((each.kind, each.num_units) for each in watched))


def _fit_sums(seen: Forward, output: LossOutput) -> Tensor:
    """Sums, float64 [8]: of 1, rho, rho^2 over the trained rows; of 1, target, target^2, error, error^2 over those that entered the loss.

    Values are in units of their task's scale.
    """
    rhos = (seen.target.log_prob(seen.actions) - seen.behaviour.log_prob(seen.actions)).double().exp().masked_fill(~seen.trained, 0.0)
    sums = [seen.trained.sum().double(), rhos.sum(), rhos.square().sum()]
    if output.targets is None:
        return torch.stack([*sums, *[torch.zeros_like(sums[0])] * 5])
    fitted = seen.trained if output.accepted is None else output.accepted
    scale = torch.ones_like(rhos) if seen.value_scale is None else seen.value_scale.double().expand_as(rhos)
    target = (output.targets.double() / scale).masked_fill(~fitted, 0.0)
    error = target - (seen.values[:-1].double() / scale).masked_fill(~fitted, 0.0)
    return torch.stack([*sums, fitted.sum().double(), target.sum(), target.square().sum(), error.sum(), error.square().sum()])


def _fit(sums: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the effective sample size and the explained variance."""
    rows, rho, rho_square, fitted, target, target_square, error, error_square = sums
    effective = rho**2 / (rows * rho_square) if rho_square else None
    if not fitted:
        return effective, None
    variance = target_square / fitted - (target / fitted) ** 2
    if variance <= _FLAT * max(target_square / fitted, _FLAT):
        return effective, None
    return effective, 1.0 - (error_square / fitted - (error / fitted) ** 2) / variance


class WatchedLayer:
    """The outputs of one layer's units, over all parts of the batch; on the device."""

    def __init__(self, rectifier: Rectifier, device: torch.device) -> None:
        self.kind: Literal["filters", "units"] = "units"
        self.num_units = rectifier.num_units
        self._ever = torch.zeros(rectifier.num_units, dtype=torch.bool, device=device)
        self._always = torch.ones_like(self._ever)

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> None:  # noqa: ARG002  a hook's arguments
        """Record one forward pass, [N, F] or [N, F, H, W]; N may be several dimensions."""
        if output.dim() == 4:
            self.kind = "filters"
        others = [axis for axis in range(output.dim()) if axis != (1 if output.dim() == 4 else output.dim() - 1)]
        fired = output > 0
        self._ever |= fired.sum(dim=others) > 0
        self._always &= fired.logical_not().sum(dim=others) == 0

    def counts(self) -> Tensor:
        """Return the number of dead units and of those always on, int64 [2]."""
        return torch.stack([self._ever.logical_not().sum(), self._always.sum()])


@contextmanager
def watched_layers(agent: nn.Module, device: torch.device) -> Iterator[list[WatchedLayer]]:
    """Watch every layer with a ReLU inside the context, in the order in which the network was built."""
    rectifiers = [module for module in agent.modules() if isinstance(module, Rectifier)]
    watched = [WatchedLayer(rectifier, device) for rectifier in rectifiers]
    hooks = [rectifier.register_forward_hook(each) for rectifier, each in zip(rectifiers, watched, strict=True)]
    try:
        yield watched
    finally:
        for hook in hooks:
            hook.remove()
