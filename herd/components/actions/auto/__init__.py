"""The distribution that fits the actions of the environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from herd.components.actions import ACTIONS, ActionSettings
from herd.components.registry import Part

if TYPE_CHECKING:
    from herd.components.actions.api import ActionDistribution
    from herd.contract.spaces import ActionSpace


class AutoActionSettings(ActionSettings):
    """The first distribution that fits the actions of the environments."""

    kind: Literal["auto"] = "auto"
    """The first distribution that fits the actions of the environments."""

    def fits(self, space: ActionSpace) -> bool:
        """See `ActionSettings`."""
        return bool(self._fitting(space))

    def num_parameters(self, space: ActionSpace) -> int:
        """See `ActionSettings`."""
        return self.chosen(space).num_parameters(space)

    def chosen(self, space: ActionSpace) -> ActionSettings:
        """Return the settings of the distribution that is used.

        Raises:
            ValueError: none fits; one line.
        """
        fitting = self._fitting(space)
        if not fitting:
            raise ValueError(f"no action distribution fits actions of {space}")
        return fitting[0]

    def _fitting(self, space: ActionSpace) -> list[ActionSettings]:
        others = (part.settings() for kind, part in ACTIONS.parts.items() if kind != self.kind)
        return [settings for settings in others if settings.fits(space)]


def chosen_distribution(settings: AutoActionSettings, space: ActionSpace) -> ActionDistribution:
    """Make the distribution that fits ``space``."""
    distribution: ActionDistribution = ACTIONS.make(settings.chosen(space), space)
    return distribution


PART = Part("auto", AutoActionSettings, f"{__name__}:chosen_distribution")
