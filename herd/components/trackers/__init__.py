"""Trackers: viewers of learning curves, and hooks of the user's own. Several may be on at once.

A tracker is on if its setting in ``logging`` is. The code of a part makes a `herd.components.trackers.api.Tracker` of
``(settings, Run)``. The settings of Herd's own trackers are keys of `LoggingSettings`; a tracker of another
package has a key of its own kind, with its settings or null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from herd.components.registry import PartSettings, Registry
from herd.components.settings import Section
from herd.components.user_code import USER_CODE


class TrackerSettings(PartSettings):
    """The settings of a tracker of another package."""


TRACKERS = Registry("tracker", __name__, TrackerSettings, first=("tensorboard", "wandb", "mlflow"))


class LoggingSettings(Section):
    """Viewers and hooks that receive every point of the learning curve (docs/curves.md)."""

    tensorboard: bool = False
    """Write event files to RUN/tensorboard for `tensorboard --logdir`. Needs herd-rl[tensorboard]."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Weights & Biases. ``offline``: writes to RUN/wandb, for `wandb sync`. ``online``: also sends to the server. Needs herd-rl[wandb]."""
    wandb_entity: str | None = None
    """User or team that owns the project. Null: the default of the account."""
    mlflow: str | None = Field(default=None, min_length=1)
    """Where MLflow keeps runs: a server (http://host:5000), or any other tracking URI that MLflow accepts. Needs herd-rl[mlflow]."""
    project: str = "herd"
    """Project of the run in Weights & Biases, experiment in MLflow."""
    hooks: dict[Annotated[str, Field(pattern=USER_CODE)], dict[str, Any] | None] = Field(default={})
    """Your own classes that receive points and checkpoints, ``module:Class``, each with its keyword arguments (docs/extending.md)."""


def logging_section() -> type[LoggingSettings]:
    """Return the section with a key for each tracker of another package."""
    foreign = {kind: (part.settings | None, None) for kind, part in TRACKERS.parts.items() if kind not in LoggingSettings.model_fields}
    if not foreign:
        return LoggingSettings
    made: type[LoggingSettings] = create_model("LoggingSettings", __base__=LoggingSettings, __doc__=LoggingSettings.__doc__, **foreign)  # type: ignore[call-overload]
    return made
