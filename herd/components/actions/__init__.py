"""Action distributions. The code of a part makes a `herd.components.actions.api.ActionDistribution` of ``(settings, space)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.components.registry import PartSettings, Registry

if TYPE_CHECKING:
    from herd.contract.spaces import ActionSpace, EnvSpec


class ActionSettings(PartSettings):
    """What all action distributions have."""

    def fits(self, space: ActionSpace) -> bool:
        """Whether actions of ``space`` can be drawn."""
        raise NotImplementedError

    def num_parameters(self, space: ActionSpace) -> int:
        """Return P, the number of parameters that the network gives for each row."""
        raise NotImplementedError

    @property
    def mixes_with_uniform(self) -> bool:
        """Whether policies are mixtures, and not the softmax of their logits."""
        return False

    def objection(self, spec: EnvSpec) -> str | None:
        """See `PartSettings`."""
        fits = self.fits(spec.actions)
        return None if fits else f"action.kind {self.kind} does not fit these environments, whose actions are {spec.actions}"


ACTIONS = Registry("action", __name__, ActionSettings, first=("auto", "categorical", "normal", "product"))
