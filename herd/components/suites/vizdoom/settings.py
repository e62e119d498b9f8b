"""Settings of the ViZDoom suite."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from herd.components.settings import Pixels, PositiveInt
from herd.components.suites import PROCESS_STEP_SECONDS, SuiteSettings


class ViZDoomSettings(SuiteSettings):
    """ViZDoom: Doom seen in first person, each environment in a process of its own."""

    suite: Literal["vizdoom"] = "vizdoom"
    """The single-player scenarios of ViZDoom's wheel."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("basic",)
    """Scenarios such as ``health_gathering``. With several names, one agent learns all of them (docs/many-tasks.md), with the actions of
    all their buttons."""
    action_repeat: PositiveInt = 4
    """Game tics (35 per second) per agent step."""
    frame_stack: PositiveInt = 1
    """Number of newest frames in one observation (S)."""
    frame_height: Pixels = 72
    """Size in pixels."""
    frame_width: Pixels = 96
    """Size in pixels."""

    makes_spaces: ClassVar[tuple[str, ...]] = ("frame_stack", "frame_height", "frame_width")

    def longest_step_seconds(self, num_environments: int) -> float:  # noqa: ARG002  each has its own process
        """See `SuiteSettings.longest_step_seconds`."""
        return PROCESS_STEP_SECONDS
