"""torch's fused Adam and AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim import Adam, AdamW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.nn import Parameter

    from herd.components.optimizers.adam import AdamSettings
    from herd.components.optimizers.adamw import AdamWSettings


def adam(settings: AdamSettings, parameters: Iterable[Parameter]) -> Adam:
    """Return the optimizer (arXiv:1412.6980)."""
    return Adam(parameters, lr=settings.learning_rate, betas=(settings.beta1, settings.beta2), eps=settings.epsilon, fused=True)


def adamw(settings: AdamWSettings, parameters: Iterable[Parameter]) -> AdamW:
    """Return the optimizer (arXiv:1711.05101)."""
    return AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )
