"""Writes points as a run of Weights & Biases, only to disk (offline) or also to its server."""

from __future__ import annotations

import secrets
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herd.components.registry import Part
from herd.components.trackers import TrackerSettings
from herd.components.trackers.api import STEP, Tracker, kept_id, scalars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.components.trackers import LoggingSettings
    from herd.components.trackers.api import Run

FOLDER = "wandb"
_LOGIN = "user"
"""The entry that `wandb login` writes next to the key, whatever the server's name."""


class WandbRun(Tracker):
    """One run of wandb, the same in every session. Raises wandb's own errors and OSError."""

    def __init__(self, settings: LoggingSettings, run: Run) -> None:
        """Start a session. It starts a process of wandb; online it contacts the server, for up to 90 s."""
        import wandb  # noqa: PLC0415  a second to load, optional

        self._run = wandb.init(
            mode="online" if settings.wandb == "online" else "offline",
            project=settings.project,
            entity=settings.wandb_entity,
            name=run.name,
            id=kept_id(run.directory / FOLDER, lambda: secrets.token_hex(6)),
            resume="allow",
            dir=run.directory,
            config=dict(run.config),
            # Herd itself keeps logs, source files and terminal output.
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )

    def on_point(self, point: Mapping[str, Any]) -> None:
        """Pass a point to wandb's process. It drops a step below the newest one, with a warning."""
        self._run.log(scalars(point), step=int(point[STEP]))

    def on_end(self) -> None:
        """Wait until everything is on disk, or on the server."""
        self._run.finish()


def is_logged_in(environ: Mapping[str, str]) -> bool:
    """Return whether wandb will find a key, in the environment or from `wandb login`. Like wandb's own check, it contacts no server."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    home = Path(environ.get("HOME", "/nonexistent"))
    for file in (Path(environ["NETRC"]),) if environ.get("NETRC") else (home / ".netrc", home / "_netrc"):
        try:
            entries = netrc(file).hosts.values()
        except (OSError, NetrcParseError, UnicodeDecodeError):
            continue
        if any(login == _LOGIN and password for login, _, password in entries):
            return True
    return False


PART = Part("wandb", TrackerSettings, f"{__name__}:WandbRun")
