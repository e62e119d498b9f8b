"""``herd pack``: writes a trained policy as one file, with its settings, its scores and a game."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import CommandError, OneLineParser, run_source
from herd.cli.preflight import require
from herd.cli.run_paths import check_checkpoint, run_with_checkpoint

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd pack",
        description="Writes the policy of a run's checkpoint as one file: weights, settings, scores and a recorded game. herd evaluate, "
        "watch and export take it in place of a run.",
    )
    parser.add_argument("run_dir", type=run_source, metavar="RUN_DIR", help="run directory of herd train")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="directory of one checkpoint; default: the newest intact one")
    parser.add_argument("--output", type=Path, metavar="FILE", help="file to write; default: the run's directory with the suffix .herd")
    parser.add_argument("--no_game", action="store_true", help="record no game, which needs neither torch nor the environment")
    return parser


def run(argv: Sequence[str]) -> int:
    """Pack; returns the exit code."""
    options = _parser().parse_args(argv)
    directory = run_with_checkpoint(options.run_dir)
    check_checkpoint(options.checkpoint, directory)
    if not options.no_game:
        require("torch", "imageio")
    from herd.evaluation.pack import GAME, SUFFIX, lay_out, write_pack  # noqa: PLC0415  not needed for --help

    output = options.output or directory.with_name(f"{directory.resolve().name}{SUFFIX}")
    with tempfile.TemporaryDirectory(prefix="herd-") as folder:
        own = lay_out(directory, Path(folder), options.checkpoint)
        if not options.no_game:
            _record(own, own / GAME)
        write_pack(Path(folder), output)
    print(f"{output}: {output.stat().st_size / 1000:,.0f} kB")
    return 0


def _record(run_dir: Path, output: Path) -> None:
    """Record a game. A policy whose games cannot be shown is packed without one."""
    from herd.components.suites.api import BrokenEnvironmentError  # noqa: PLC0415  loads torch; not needed for --help
    from herd.evaluation.protocols import EvaluationError  # noqa: PLC0415
    from herd.evaluation.watch import record_episode  # noqa: PLC0415

    try:
        record_episode(run_dir, output)
    except (BrokenEnvironmentError, CommandError, EvaluationError) as error:
        print(f"herd: no game recorded: {error}", file=sys.stderr)
