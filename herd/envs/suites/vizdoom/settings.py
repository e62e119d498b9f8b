"""Settings of the ViZDoom suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from herd.config.section import PositiveInt
from herd.config.suites import SuiteSettings

if TYPE_CHECKING:
    from herd.config.settings import NetworkSettings


class ViZDoomSettings(SuiteSettings):
    """ViZDoom: Doom seen in first person, each environment in a process of its own."""

    suite: Literal["vizdoom"] = "vizdoom"
    """The scenarios that ViZDoom's wheel brings for one player."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("basic",)
    """Scenarios such as ``health_gathering``. Several make one agent of many tasks (docs/many-tasks.md), whose actions are those of all
    their buttons."""
    action_repeat: PositiveInt = 4
    """Tics, 35 a second, per agent step."""
    frame_stack: PositiveInt = 1
    """Newest frames that make up one observation (S)."""
    frame_height: PositiveInt = 72
    """Pixels."""
    frame_width: PositiveInt = 96
    """Pixels."""

    makes_spaces: ClassVar[tuple[str, ...]] = ("frame_stack", "frame_height", "frame_width")

    def objection(self, network: NetworkSettings) -> str | None:
        """See `SuiteSettings.objection`."""
        return "network.language needs a suite with instructions; vizdoom has none" if network.language else None
