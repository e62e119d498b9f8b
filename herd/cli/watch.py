"""``herd watch``: records a game of a run's policy as a video."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import NON_NEGATIVE, POSITIVE, WHOLE, CommandError, OneLineParser, run_source
from herd.cli.preflight import require
from herd.cli.run_paths import check_checkpoint, place_for_results, run_with_checkpoint

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="herd watch", description="Plays a game with a run's checkpoint and writes it as a .gif or .mp4.")
    parser.add_argument("run_dir", type=run_source, metavar="RUN_DIR", help="run directory of herd train, or a file of herd pack")
    parser.add_argument("--output", type=Path, metavar="FILE", help=".gif or .mp4; default: RUN_DIR/episode.gif")
    parser.add_argument("--task", metavar="NAME", help="task to play; default: the run's first")
    parser.add_argument(
        "--min_seconds",
        type=NON_NEGATIVE,
        default=10.0,
        metavar="S",
        help="record games until the video has this length; 0: one game",
    )
    parser.add_argument("--max_seconds", type=POSITIVE, default=60.0, metavar="S", help="maximum length of the video in seconds")
    parser.add_argument(
        "--view", choices=("screen", "network"), default="screen", help="screen: the game's own picture; network: what the network sees"
    )
    parser.add_argument("--greedy", action="store_true", help="take the most probable action instead of sampling")
    parser.add_argument("--seed", type=WHOLE, default=0, metavar="N", help="random seed of the game and of the policy's sampling")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="directory of one checkpoint; default: the newest intact one")
    return parser


def run(argv: Sequence[str]) -> int:
    """Record; returns the exit code."""
    options = _parser().parse_args(argv)
    given = options.run_dir
    options.run_dir = run_with_checkpoint(given)
    check_checkpoint(options.checkpoint, options.run_dir)
    output = options.output if options.output is not None else place_for_results(given, options.run_dir, "episode.gif")
    if output.suffix.lower() not in {".gif", ".mp4"}:
        raise CommandError(f"{output}: the name of a recording must end in .gif or .mp4")
    if not output.parent.is_dir():
        raise CommandError(f"{output.parent}: no such folder")
    require("torch", "imageio")
    from rich.console import Console  # noqa: PLC0415  not needed for --help

    from herd.cli.evaluate import Lines  # noqa: PLC0415
    from herd.components.suites.api import BrokenEnvironmentError  # noqa: PLC0415
    from herd.evaluation.protocols import EvaluationError  # noqa: PLC0415  not needed for --help
    from herd.evaluation.watch import record_episode  # noqa: PLC0415  loads torch

    console = Console(stderr=True)
    lines = Lines(console, "")
    try:
        with console.status(f"opening {options.run_dir}") as status:
            shown = status.update if console.is_terminal else lines.show
            recording = record_episode(
                options.run_dir,
                output,
                checkpoint=options.checkpoint,
                task=options.task,
                seed=options.seed,
                min_seconds=options.min_seconds,
                max_seconds=options.max_seconds,
                view=options.view,
                greedy=options.greedy,
                on_progress=lambda seconds: shown(f"recording: {seconds:.0f} s of at most {options.max_seconds:g} s"),
            )
    except (BrokenEnvironmentError, EvaluationError) as error:
        raise CommandError(str(error)) from error
    print(f"{recording.output}: {recording.task_name}, {recording.seconds:.1f} s, {recording.result}")
    return 0
