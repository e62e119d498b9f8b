"""torch's fused AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim import AdamW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.nn import Parameter

    from herd.components.optimizers.adamw import AdamWSettings


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
