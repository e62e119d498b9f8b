"""``herd plot``: draws learning curves of runs, the values that a run's bandits learned, or the history of a population."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import WHOLE, CommandError, OneLineParser, run_source
from herd.cli.preflight import require
from herd.cli.run_paths import existing_run
from herd.run.paths import agent_directories

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd plot",
        description="Draws return and throughput of runs; repeats of an experiment are averaged and drawn with an interval. "
        "With --bandit: the values of a run's temperatures over time, and how often each was played. "
        "With --population: scores and settings of the members, the family tree, and the curve of the best member through its ancestors.",
    )
    parser.add_argument(
        "run_dirs",
        type=run_source,
        nargs="+",
        metavar="RUN_DIR",
        help="run directory of herd train; the run may still be training",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=".png, .pdf or .svg; default: curve.png, bandit.png or population.png in RUN_DIR; curves.png for several runs",
    )
    parser.add_argument("--bandit", action="store_true", help="draw the bandits of one run")
    parser.add_argument("--population", action="store_true", help="draw the population of one run")
    parser.add_argument("--task", metavar="NAME", help="with --bandit: task to draw, if the run has several")
    parser.add_argument("--agent", type=WHOLE, default=0, metavar="N", help="with --bandit: agent to draw, if the run has several")
    parser.add_argument("--x", choices=("env_frames", "wall_seconds"), default="env_frames", help="horizontal axis of learning curves")
    parser.add_argument(
        "--panels",
        choices=("returns", "learning"),
        default="returns",
        help="returns: returns and speed; learning: losses, entropy, values and KL, in learning.png",
    )
    parser.add_argument(
        "--group",
        choices=("experiment", "none"),
        default="experiment",
        help="experiment: average the repeats of an experiment; none: draw every run",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Plot; returns the exit code."""
    options = _parser().parse_args(argv)
    options.run_dirs = [existing_run(directory, fetches_checkpoints=False) for directory in options.run_dirs]
    if (problem := _objection(options)) is not None:
        raise CommandError(problem)
    require("matplotlib")
    draw = _bandit if options.bandit else _population if options.population else _curves
    print(draw(options, options.run_dirs[0]))
    return 0


def _objection(options: argparse.Namespace) -> str | None:
    several = len(options.run_dirs) > 1
    if options.population and (options.bandit or several or options.x != "env_frames"):
        return "--population takes one run and --x env_frames, and cannot be combined with --bandit"
    if options.bandit and (several or options.x != "env_frames"):
        return "--bandit takes one run and --x env_frames; choose its task and agent with --task and --agent"
    if not options.bandit and options.task is not None:
        return "--task needs --bandit"
    return None


def _curves(options: argparse.Namespace, run_dir: Path) -> Path:
    from herd.components.suites import reference_scores  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.view.plots.curves import plot_runs  # noqa: PLC0415

    of_one, of_several = ("curve.png", "curves.png") if options.panels == "returns" else ("learning.png", "learning.png")
    output: Path = options.output or (run_dir / of_one if len(options.run_dirs) == 1 else Path(of_several))
    plot_runs(
        [agent for directory in options.run_dirs for agent in agent_directories(directory)],
        output,
        x=options.x,
        group=options.group,
        reference_scores=reference_scores,
        panels=options.panels,
    )
    return output


def _bandit(options: argparse.Namespace, run_dir: Path) -> Path:
    from herd.view.plots.bandit import plot_bandit  # noqa: PLC0415  loads numpy; not needed for --help

    output: Path = options.output or run_dir / ("bandit.png" if options.task is None else f"bandit-{options.task}.png")
    plot_bandit(run_dir, output, task=options.task, agent=options.agent)
    return output


def _population(options: argparse.Namespace, run_dir: Path) -> Path:
    from herd.view.plots.population import plot_population  # noqa: PLC0415  loads numpy; not needed for --help

    output: Path = options.output or run_dir / "population.png"
    plot_population(run_dir, output)
    return output
