"""The frame of every picture: an empty figure, and the file that it is written to."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from herd.files import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")
# Okabe and Ito's colours, which are distinguishable with all common kinds of colour blindness, without black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F5539", "#5E548E")
BLUE, VERMILION, GREEN, _PURPLE, ORANGE = COLOURS[:5]


class PlotError(FileError):
    """A run cannot be plotted, or the picture cannot be written; one line."""


def check_output(output: Path) -> None:
    """Refuse a file whose name has an unknown ending, before anything is read.

    Raises:
        PlotError: the ending is none of `SUFFIXES`.

    """
    if output.suffix.lower() not in SUFFIXES:
        raise PlotError(f"{output}: the name of a plot must end in {', '.join(SUFFIXES)}")


@contextmanager
def drawn_to(output: Path, size: tuple[float, float] | None = None) -> Iterator[Figure]:
    """Yield an empty figure of ``size`` inches, and write it to ``output``, whose folder is created, when the block ends.

    Raises:
        PlotError: the file cannot be written.

    """
    import matplotlib as mpl  # noqa: PLC0415  half a second; only drawing pays for it
    from matplotlib.figure import Figure  # noqa: PLC0415  as above

    # Without a salt, two pictures of the same run differ in the ids of an .svg.
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "herd"}):
        figure = Figure(figsize=size, layout="constrained", dpi=150)
        yield figure
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(output)
        except OSError as error:
            raise PlotError(f"cannot write {error.filename or output}: {error.strerror or error}") from error


def x_scale(largest: float, what: str = "environment frames") -> tuple[float, str]:
    """Return the unit in which numbers up to ``largest`` are written on an axis, and the axis's label."""
    if largest >= 2e6:
        return 1e6, f"{what} (millions)"
    return (1e3, f"{what} (thousands)") if largest >= 2e3 else (1.0, what)
