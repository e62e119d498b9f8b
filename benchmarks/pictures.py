"""The look that all pictures of measurements share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plain(axes: Axes, label: str) -> None:
    """Give axes a light grid, no frame above and on the right, and a label of what goes from left to right."""
    axes.grid(visible=True, color="0.9", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(label)
