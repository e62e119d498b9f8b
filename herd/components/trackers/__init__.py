"""External viewers of learning curves. Several may be on at once: a tracker is on if its setting in ``logging`` is.

The code of a part makes an `herd.components.trackers.api.Tracker` of ``(settings, Run)``. The settings of Herd's own trackers are keys of
`LoggingSettings`; a tracker of another package has a key of its own kind, with its settings or null.
"""

from __future__ import annotations

from typing import Literal

from pydantic import create_model

from herd.components.registry import PartSettings, Registry
from herd.components.settings import Section


class TrackerSettings(PartSettings):
    """The settings of a tracker of another package."""


TRACKERS = Registry("tracker", __name__, TrackerSettings, first=("tensorboard", "wandb"))


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


def logging_section() -> type[LoggingSettings]:
    """Return the section with a key for each tracker of another package."""
    foreign = {kind: (part.settings | None, None) for kind, part in TRACKERS.parts.items() if kind not in LoggingSettings.model_fields}
    if not foreign:
        return LoggingSettings
    made: type[LoggingSettings] = create_model("LoggingSettings", __base__=LoggingSettings, __doc__=LoggingSettings.__doc__, **foreign)  # type: ignore[call-overload]
    return made
