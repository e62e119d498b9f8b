"""``herd report``: writes one HTML page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import CommandError, OneLineParser, run_source
from herd.cli.preflight import require
from herd.cli.run_paths import existing_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.view.report.page import Game


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd report",
        description="Writes one HTML page about a run: curves, tasks, settings, machine, and a game played with the newest checkpoint. "
        "The page is self-contained.",
    )
    parser.add_argument("run_dir", type=run_source, metavar="RUN_DIR", help="run directory of herd train; the run may still be training")
    parser.add_argument("--output", type=Path, metavar="FILE", help="file that ends in .html; default: RUN_DIR/report.html")
    parser.add_argument("--no_game", action="store_true", help="play no game, which is faster and needs neither torch nor the environment")
    return parser


def run(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    options = _parser().parse_args(argv)
    options.run_dir = existing_run(options.run_dir)
    from herd.components.suites import reference_scores  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.view.report.page import PAGE, write_page  # noqa: PLC0415  as above

    output = options.output if options.output is not None else options.run_dir / PAGE
    if output.suffix.lower() != ".html":
        raise CommandError(f"{output}: the name of a report must end in .html")
    require("jinja2", "matplotlib")
    try:
        game, no_game = (None, "Playing a game was switched off (--no_game).") if options.no_game else _play(options.run_dir)
        num_bytes = write_page(options.run_dir, output, game=game, no_game=no_game, reference_scores=reference_scores)
    except OSError as error:
        raise CommandError(f"{error.filename or output}: {error.strerror or error}") from error
    note = "" if no_game is None or options.no_game else f"; {no_game}"
    print(f"{output}: {num_bytes / 1e6:.1f} MB{note}")
    return 0


def _play(run_dir: Path) -> tuple[Game | None, str | None]:
    """Play a game with the best agent. Returns the game, or why there is none; the page is written in either case."""
    from herd.components.suites.api import BrokenEnvironmentError  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.evaluation.protocols import EvaluationError  # noqa: PLC0415  as above
    from herd.view.report.facts import read_facts  # noqa: PLC0415  as above
    from herd.view.report.page import play_game  # noqa: PLC0415  as above

    best = read_facts(run_dir).agents[0]
    try:
        return play_game(best), None
    except ImportError as error:
        return None, f"No game: playing needs {error.name}."
    except (BrokenEnvironmentError, EvaluationError) as error:
        return None, f"No game: {error}."
