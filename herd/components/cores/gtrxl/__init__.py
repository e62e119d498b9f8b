"""A gated transformer with a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from herd.components.cores import CoreSettings
from herd.components.registry import Part
from herd.components.settings import PositiveInt

if TYPE_CHECKING:
    from typing import Self


class GTrXLSettings(CoreSettings):
    """A gated transformer (GTrXL, arXiv:1910.06764) that attends to the last ``memory`` steps of the episode."""

    kind: Literal["gtrxl"] = "gtrxl"
    """A gated transformer (GTrXL, arXiv:1910.06764) that attends to the last ``memory`` steps of the episode."""
    size: PositiveInt = 128
    """Size of a step's embedding (D); a multiple of ``heads``."""
    layers: PositiveInt = 2
    """Transformer blocks (L)."""
    heads: PositiveInt = 4
    """Attention heads of a block."""
    memory: PositiveInt = 32
    """Number of earlier steps that a block attends to (M). With L blocks, a step depends on up to L M earlier steps, and each unroll
    carries a state of L M D numbers."""

    def state_size(self) -> int:
        """Return L M D + 1: the inputs of each block at the last M steps, and how many of these steps there were."""
        return self.layers * self.memory * self.size + 1

    @model_validator(mode="after")
    def _divides_among_heads(self) -> Self:
        if self.size % self.heads:
            raise ValueError(f"size {self.size} should be a multiple of heads {self.heads}")
        return self


PART = Part("gtrxl", GTrXLSettings, f"{__name__}.gtrxl:GTrXLCore")
