"""Pixel control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from herd.components.auxiliary import AuxiliarySettings
from herd.components.registry import Part, needs_one_discrete_action
from herd.components.settings import Fraction, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from herd.contract.spaces import EnvSpec

MIN_CELLS = 8
"""Least number of cells on each side: the output size of the deconvolutions for an input of size 1."""


class PixelControlSettings(AuxiliarySettings):
    """Pixel control: learn how much actions change each cell of the picture (arXiv:1611.05397; arXiv:1809.04474, appendix)."""

    kind: Literal["pixel_control"] = "pixel_control"
    """Pixel control: for each cell of the picture, the agent's features learn the values of actions that change the pixels of the cell."""
    cost: PositiveFloat = 0.01
    """Weight of the loss, which is a sum over cells. PopArt's paper does not state its weight. UNREAL samples it from 0.01 to 0.1 for its
    3-D levels and from 0.0001 to 0.01 for Atari; both ranges contain the default."""
    discount: Fraction = 0.9
    """Discount of the pseudo-rewards, per agent step."""
    cell_size: PositiveInt = 4
    """Pixels on each side of a cell."""

    def grid(self, spec: EnvSpec) -> tuple[int, int]:
        """Rows and columns of cells. Both are even: the last deconvolution turns n into ``2 n + 2``. Pixels at the edges are unused."""
        height, width, _ = spec.frame_shape
        return height // self.cell_size // 2 * 2, width // self.cell_size // 2 * 2

    def objection(self, spec: EnvSpec) -> str | None:
        """Say why these observations cannot be trained on, in one sentence that names the setting; None if they can."""
        if not spec.has_frames:
            return "auxiliary.kind pixel_control needs pictures, but these observations are vectors: set auxiliary.kind none"
        if (objection := needs_one_discrete_action("auxiliary.kind pixel_control", spec)) is not None:
            return objection
        if min(self.grid(spec)) < MIN_CELLS:
            height, width, _ = spec.frame_shape
            pixels = MIN_CELLS * self.cell_size
            return (
                f"auxiliary.kind pixel_control with auxiliary.cell_size {self.cell_size} needs frames of at least {pixels} x {pixels} "
                f"pixels, not {height} x {width}"
            )
        return None


PART = Part("pixel_control", PixelControlSettings, f"{__name__}.loss:PixelControl")
