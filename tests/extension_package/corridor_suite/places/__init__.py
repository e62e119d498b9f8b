"""A torso from another package: an embedding of the place in the corridor. Its settings load no torch."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.torsos import TorsoSettings
from herd.contract.spaces import EnvSpec


class CorridorPlacesSettings(TorsoSettings):
    """An embedding of the place."""

    kind: Literal["corridor_places"] = "corridor_places"
    """An embedding of the place."""

    def objection(self, spec: EnvSpec) -> str | None:
        return None if spec.vector_size else "network.torso corridor_places needs the corridor"


PART = Part("corridor_places", CorridorPlacesSettings, f"{__name__}.torso:Places")
