"""``report.html``: one self-contained page about a run."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from herd.files import replace_file
from herd.run.journals import best_inverse_temperatures
from herd.run.paths import whole_run
from herd.view.parts import parts_of
from herd.view.report.charts import charts_of
from herd.view.report.facts import read_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.view.parts import Part
    from herd.view.plots.curves import ReferenceScores
    from herd.view.report.charts import Chart
    from herd.view.report.game import Game

PAGE = "report.html"
_TEMPLATE = "page.html.jinja"
_MOST_PICTURES = 4
_MOST_TASK_CHARTS = 6
"""With more tasks, their panels are collapsed below those of all tasks together."""


@dataclass(frozen=True, slots=True)
class Page:
    """What was written."""

    file: Path
    num_bytes: int


def write_page(
    run_dir: Path, output: Path, *, game: Game | None, no_game: str | None, reference_scores: ReferenceScores | None = None
) -> Page:
    """Write the page of a running or finished run.

    Args:
        run_dir: run directory of ``herd train``, or that of one of its agents.
        output: file to write; an existing file is replaced.
        game: the recorded game.
        no_game: why there is no game, for the reader.
        reference_scores: suite and task name -> (random, human) score or None.

    Raises:
        JournalError: the run has no points yet, or they cannot be read.
        OSError: the page cannot be written, or config.yaml cannot be read.

    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  optional, as all of plotting

    facts = read_facts(run_dir)
    returns, legends = charts_of(sorted(facts.agents), "returns", reference_scores=reference_scores)
    learning = _learning(sorted(facts.agents))
    num_tasks = len({task.name for task in facts.tasks})
    folded = returns[:num_tasks] if num_tasks > _MOST_TASK_CHARTS else []
    environment = Environment(loader=PackageLoader("herd.view.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    html = environment.get_template(_TEMPLATE).render(
        facts=facts,
        run_dir=str(run_dir),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("herd-rl"),
        returns=returns[len(folded) :],
        folded=folded,
        learning=learning,
        parts=[(part, _pictures(whole_run(run_dir), part)) for part in parts_of(whole_run(run_dir))],
        legends=legends,
        game=None if game is None else base64.b64encode(game.gif).decode("ascii"),
        game_caption="" if game is None else game.caption,
        no_game=no_game,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(output, html)
    return Page(output, len(html.encode()))


def _pictures(run_dir: Path, part: Part) -> list[tuple[str, str]]:
    """Draw a part: name and base64 of each picture; a bandit has one for each of the first tasks of each agent."""
    from herd.files import JournalError  # noqa: PLC0415  as above
    from herd.view.plots.bandit import plot_bandit  # noqa: PLC0415  as above
    from herd.view.plots.population import plot_population  # noqa: PLC0415  as above

    drawings: dict[str, Callable[[Path], None]] = {}
    if part.plot == "--population":
        drawings[""] = partial(plot_population, run_dir)
    elif part.plot == "--bandit":
        for agent, task in sorted(best_inverse_temperatures(run_dir))[:_MOST_PICTURES]:
            drawings[task] = partial(plot_bandit, run_dir, task=task, agent=agent)
    pictures = []
    with TemporaryDirectory() as folder:
        for name, draw in drawings.items():
            with suppress(JournalError):  # nothing to draw yet
                draw(Path(folder) / "picture.png")
                pictures.append((name, base64.b64encode((Path(folder) / "picture.png").read_bytes()).decode("ascii")))
    return pictures


def _learning(agents: list[Path]) -> list[Chart]:
    from herd.files import JournalError  # noqa: PLC0415  loads numpy

    try:
        charts, _ = charts_of(agents, "learning")
    except JournalError:  # no update has been made
        return []
    return charts
