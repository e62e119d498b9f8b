"""``herd evaluate``: the score of a checkpoint over whole games."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.errors import CommandError
from herd.cli.requirements import require
from herd.cli.run_paths import run_with_checkpoint
from herd.config.arguments import take_section
from herd.config.options import OneLineParser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd evaluate",
        description="Plays whole games with a run's checkpoint, prints the scores and writes RUN_DIR/evaluation-<updates>.json. "
        "Settings of the environments are those of training unless given here, as in --env.noop_max 30.",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="of herd train")
    parser.add_argument("--episodes", type=int, default=200, metavar="N", help="games of every task")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of games and of the policy's sampling")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="directory of one checkpoint; default: the newest whole one")
    parser.add_argument("--environments", type=int, metavar="N", help="games played at once; default: chosen")
    parser.add_argument("--greedy", action="store_true", help="take the most probable action instead of sampling")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def run(argv: Sequence[str]) -> int:
    """Evaluate; returns the exit code."""
    overrides, words = take_section(argv, "env")
    options = _parser().parse_args(words)
    if options.episodes < 1:
        raise CommandError(f"--episodes must be at least 1, not {options.episodes}")
    run_with_checkpoint(options.run_dir)
    require("torch", "safetensors")
    from rich.console import Console  # noqa: PLC0415  after the command line is understood

    from herd.evaluation.evaluate import evaluate_run  # noqa: PLC0415  torch loads
    from herd.evaluation.report import print_report  # noqa: PLC0415
    from herd.evaluation.trained_run import EvaluationError  # noqa: PLC0415

    progress = Console(stderr=True)
    with progress.status("loading") as status:

        def show(finished: int, wanted: int) -> None:
            status.update(f"{finished} of {wanted} games")

        try:
            report = evaluate_run(
                options.run_dir,
                episodes=options.episodes,
                overrides=overrides,
                checkpoint=options.checkpoint,
                seed=options.seed,
                environments=options.environments,
                greedy=options.greedy,
                on_progress=show,
            )
        except EvaluationError as error:
            raise CommandError(str(error)) from error
    if options.json:
        file = options.run_dir / f"evaluation-{report.learner_updates}.json"
        sys.stdout.write(file.read_text(encoding="utf-8"))
    else:
        print_report(report)
    return 0
