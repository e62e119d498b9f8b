"""``report.html``: one self-contained page about a run, with its curves and a recorded game."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.files import FileError, replace_file
from herd.view.plots.curves import collect_curves
from herd.view.plots.figure import COLOURS, new_figure
from herd.view.plots.panels import draw_panel, scale_of, tick_text
from herd.view.report.facts import read_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.view.plots.curves import Curves, ReferenceScores
    from herd.view.plots.panels import Line, Panel, PanelSet

PAGE = "report.html"
_TEMPLATE = "page.html.jinja"
_MAX_TASK_CHARTS = 6
"""With more tasks, their panels are collapsed below those of all tasks together."""


def write_page(
    run_dir: Path, output: Path, *, game: Game | None, no_game: str | None, reference_scores: ReferenceScores | None = None
) -> int:
    """Write the page of a running or finished run; returns its size in bytes.

    Args:
        run_dir: run directory of ``herd train``, or that of one of its agents.
        output: file to write; an existing file is replaced.
        game: the recorded game.
        no_game: why there is no game, for the reader.
        reference_scores: suite and task name -> (random, human) score or None.

    Raises:
        FileError: the run has no points yet, or they cannot be read.
        OSError: the page cannot be written, or config.yaml cannot be read.

    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  optional, as all of plotting

    facts = read_facts(run_dir)
    returns, legend = charts_of(sorted(facts.agents), "returns", reference_scores=reference_scores)
    learning = _learning(sorted(facts.agents))
    num_tasks = len({task.name for task in facts.tasks})
    folded = returns[:num_tasks] if num_tasks > _MAX_TASK_CHARTS else []
    environment = Environment(loader=PackageLoader("herd.view.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    html = environment.get_template(_TEMPLATE).render(
        facts=facts,
        run_dir=str(run_dir),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("herd-rl"),
        returns=returns[len(folded) :],
        folded=folded,
        learning=learning,
        legend=legend,
        game=None if game is None else base64.b64encode(game.gif).decode("ascii"),
        game_caption="" if game is None else game.caption,
        no_game=no_game,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(output, html)
    return len(html.encode())


def _learning(agents: list[Path]) -> list[Chart]:
    try:
        charts, _ = charts_of(agents, "learning")
    except FileError:  # no update has been made
        return []
    return charts


_HEIGHT = 2.5
_WIDTH = 4.0
"""Width in inches: in a column of 370 pixels, 9 points become 12 pixels."""
_INK = "#0b0b0b"
_VARIABLES = {
    _INK: "--ink",
    "#e6e6e6": "--grid",  # matplotlib's "0.9", and so on
    "#595959": "--muted",
    "#737373": "--muted",
    "#ffffff": "--surface",
    **{colour.lower(): f"--series-{number}" for number, colour in enumerate(COLOURS)},
}
"""Drawn colours, and the CSS properties of the page that replace them."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel of the page."""

    title: str
    summary: str
    """The final value of the curve, for screen readers and below the picture."""
    svg: str


def charts_of(
    agents: Sequence[Path], panels: PanelSet, *, reference_scores: ReferenceScores | None = None
) -> tuple[list[Chart], dict[str, int]]:
    """Draw every panel of a run's agents. Returns as well the number of the colour of each run, by label; empty for a single run.

    Raises:
        FileError: there is nothing to draw yet.

    """
    import matplotlib as mpl  # noqa: PLC0415  half a second; only drawing pays for it

    curves = collect_curves(agents, panels, group="none", reference_scores=reference_scores)
    style: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "herd", "figure.facecolor": "none"}
    style |= dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK)
    with mpl.rc_context(style):
        charts = [_chart(curves, panel, number) for number, panel in enumerate(curves.panels)]
    colours = {line.label: COLOURS.index(line.colour) for line in curves.lines if not line.thin and not line.is_evaluation}
    return charts, colours if len(colours) > 1 else {}


def _chart(curves: Curves, panel: Panel, number: int) -> Chart:
    summary = _summary([line for line in curves.lines if line.panel == panel])
    svg = _for_the_page(_drawn(curves, panel), f"{panel.kind}{number}", f"{panel.title}: {summary}")
    return Chart(panel.title, summary, svg)


def _summary(lines: Sequence[Line]) -> str:
    ends = [line.curve.mean[np.isfinite(line.curve.mean)][-1:] for line in lines if not line.thin and not line.is_evaluation]
    values = [float(end[0]) for end in ends if len(end)]
    if not values:
        return "not measured yet"
    if len(values) == 1:
        return f"now {_short(values[0])}"
    return f"now {_short(min(values))} to {_short(max(values))}"


def _short(value: float) -> str:
    """Format with three significant digits; thousands are rounded to integers."""
    return tick_text(value if abs(value) >= 1000 else float(f"{value:.3g}"))


def _drawn(curves: Curves, panel: Panel) -> str:
    figure = new_figure((_WIDTH, _HEIGHT))
    axes = figure.subplots()
    lines = [line for line in curves.lines if line.panel == panel]
    draw_panel(axes, panel, lines, scale=scale_of(curves.lines, "env_frames"), references=curves.references)
    axes.patch.set_visible(False)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return drawn.getvalue()


def _for_the_page(svg: str, prefix: str, label: str) -> str:
    """Remove parts that only files need, and set unique ids, the page's colours and a label."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda found: f"var({_VARIABLES[found[0]]})" if found[0] in _VARIABLES else found[0], svg)
    escaped = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    # The page determines the size: a picture fills its column.
    svg = re.sub(r'^<svg([^>]*?) width="[^"]*" height="[^"]*"', rf'<svg role="img" aria-label="{escaped}"\1', svg, count=1)
    return re.sub(r'^(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)


SHORTEST_SECONDS = 8.0
"""Least length: short games are repeated."""
LONGEST_SECONDS = 20.0
"""Longest recording, which takes a few megabytes of the page."""


@dataclass(frozen=True, slots=True)
class Game:
    """A recorded game."""

    gif: bytes
    caption: str


def play_game(agent: Path) -> Game:
    """Play with the newest checkpoint of an agent's directory.

    Raises:
        EvaluationError: there is no checkpoint or no picture.
        BrokenEnvironmentError: the environment failed.
        ImportError: a package that playing needs is not installed.

    """
    from herd.evaluation.watch import record_episode  # noqa: PLC0415  loads torch

    with TemporaryDirectory() as folder:
        file = Path(folder) / "game.gif"
        recording = record_episode(agent, file, min_seconds=SHORTEST_SECONDS, max_seconds=LONGEST_SECONDS)
        ended = recording.result if recording.episode_returns else f"the first {recording.seconds:.0f} seconds of a game"
        return Game(file.read_bytes(), f"{recording.task_name}: {ended}")
