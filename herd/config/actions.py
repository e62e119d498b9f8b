"""How actions are drawn: settings of the action distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.components.settings import Section

if TYPE_CHECKING:
    from herd.contract.actions import ActionSpace


class CategoricalSettings(Section):
    """One of A discrete actions, by their logits."""

    def num_parameters(self, space: ActionSpace) -> int:
        """Return P, the number of parameters that the network gives for each row: a logit for each action."""
        return space.num_actions

    def num_features(self, space: ActionSpace) -> int:
        """Return the number of features of a last action, where the network is fed with it: one-hot."""
        return space.num_actions


def action_settings(space: ActionSpace) -> CategoricalSettings:  # noqa: ARG001
    """Return the settings of the distribution that fits ``space``."""
    return CategoricalSettings()
