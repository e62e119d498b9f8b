"""Makes the distribution that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.components.actions import ACTIONS

if TYPE_CHECKING:
    from herd.components.actions.api import ActionDistribution
    from herd.components.actions.auto import AutoActionSettings
    from herd.contract.spaces import ActionSpace


def chosen_distribution(settings: AutoActionSettings, space: ActionSpace) -> ActionDistribution:
    """Make the distribution that fits ``space``."""
    distribution: ActionDistribution = ACTIONS.make(settings.chosen(space), space)
    return distribution
