"""``report.html``: one self-contained page about a run, with its curves and a recorded game."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from herd.files import FileError, replace_file
from herd.view.plots.curves import plot_runs
from herd.view.report.facts import read_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.view.plots.curves import ReferenceScores
    from herd.view.plots.panels import PanelSet

PAGE = "report.html"
_TEMPLATE = "page.html.jinja"
_MAX_TASKS = 6
"""With more tasks, the picture of their curves is wider than the page, so that its panels can be read."""


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
    agents = sorted(facts.agents)
    returns, learning = _curves(agents, "returns", reference_scores), None
    with suppress(FileError):  # no update has been made
        learning = _curves(agents, "learning")
    environment = Environment(loader=PackageLoader("herd.view.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    html = environment.get_template(_TEMPLATE).render(
        facts=facts,
        run_dir=str(run_dir),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("herd-rl"),
        has_many_tasks=len({task.name for task in facts.tasks}) > _MAX_TASKS,
        returns=returns,
        learning=learning,
        game=None if game is None else _base64(game.gif),
        game_caption="" if game is None else game.caption,
        no_game=no_game,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(output, html)
    return len(html.encode())


def _curves(agents: Sequence[Path], panels: PanelSet, reference_scores: ReferenceScores | None = None) -> str:
    """Draw the curves of a run's agents; returns a .png in base64."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "curves.png"
        plot_runs(agents, file, group="none", panels=panels, reference_scores=reference_scores)
        return _base64(file.read_bytes())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


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
