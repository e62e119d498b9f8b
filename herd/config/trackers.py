"""Where else the points of the learning curve go: viewers that other people have made."""

from __future__ import annotations

from typing import Literal

from herd.config.section import Section


class LoggingSettings(Section):
    """Viewers that get every point of the learning curve (metrics.jsonl) as well (docs/curves.md)."""

    tensorboard: bool = False
    """Write event files to RUN/tensorboard for `tensorboard --logdir`. Needs herd-rl[tensorboard]."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Weights & Biases. ``offline``: into RUN/wandb, for `wandb sync`; ``online``: to its server too. Needs herd-rl[wandb]."""
    wandb_project: str = "herd"
    """The project that the run appears in."""
    wandb_entity: str | None = None
    """The user or team that owns the project; null: the default of the account."""
