"""External viewers that receive the points of the learning curve."""

from __future__ import annotations

from typing import Literal

from herd.components.settings import Section


class LoggingSettings(Section):
    """Viewers that also receive every point of the learning curve (docs/curves.md)."""

    tensorboard: bool = False
    """Write event files to RUN/tensorboard for `tensorboard --logdir`. Needs herd-rl[tensorboard]."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Weights & Biases. ``offline``: writes to RUN/wandb, for `wandb sync`. ``online``: also sends to the server. Needs herd-rl[wandb]."""
    wandb_project: str = "herd"
    """Project of the run in Weights & Biases."""
    wandb_entity: str | None = None
    """User or team that owns the project. Null: the default of the account."""
