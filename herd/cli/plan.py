"""``herd plan``: the resources for a frame rate, with the arithmetic."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.errors import CommandError
from herd.cli.options import POSITIVE, POSITIVE_WHOLE, OneLineParser, number
from herd.config.experiments import find_run_file
from herd.config.loading import load_settings
from herd.config.loading.sources import split_arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.config.settings import RunSettings


RATE = number("number above 0 and at most 1e12", lambda value: 0 < value <= 1e12)


def run(argv: Sequence[str]) -> int:
    """Print a plan; returns the exit code."""
    options, words = _parser().parse_known_args(argv)
    if options.json and options.values:
        raise CommandError("--json and --values cannot be combined")
    preset = find_run_file(options.preset) if options.preset is not None else None
    settings = _settings(preset, words)
    # --help and bad settings do without sockets, which the layout of an unroll brings along.
    from herd.bench.plan import PlanOptions, make_plan  # noqa: PLC0415
    from herd.bench.plan_figures import FiguresError, package_figures, with_own_figures  # noqa: PLC0415
    from herd.bench.plan_output import as_json, helm_values, print_plan  # noqa: PLC0415
    from herd.bench.weights_size import NoTorchError  # noqa: PLC0415

    asked = PlanOptions(**{field.name: getattr(options, field.name) for field in fields(PlanOptions)})
    try:
        plan = make_plan(settings, asked, with_own_figures(package_figures(), options.figures))
    except (FiguresError, NoTorchError) as error:
        raise CommandError(str(error)) from error
    if options.values:
        print(helm_values(plan, experiment=preset, overrides=words), end="")
    elif options.json:
        print(json.dumps(as_json(plan), indent=2))
    else:
        from herd.cli.consoles import table_console  # noqa: PLC0415  values and JSON do without

        print_plan(plan, table_console())
    return 0


def _settings(preset: Path | None, words: Sequence[str]) -> RunSettings:
    files, overrides = split_arguments(words)
    if files:
        raise CommandError(f"{files[0]}: unexpected word; a run file is given as --preset {files[0]}")
    return load_settings([preset] if preset is not None else [], overrides, os.environ)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd plan",
        description="Computes the resources for a frame rate: actors, learner shards, parameter servers, network and memory. "
        "Prints the arithmetic and the source of each figure. Settings are given as for herd train: --actor.environments 64.",
    )
    parser.add_argument(
        "--frames_per_second", type=RATE, required=True, help="env frames per second that learners consume, over all agents"
    )
    parser.add_argument(
        "--preset",
        type=Path,
        metavar="FILE",
        help="run file, or name of a shipped experiment; default: Breakout with default settings",
    )
    parser.add_argument("--learner", choices=("gpu", "cpu"), default="gpu", help="device that learner shards train on")
    parser.add_argument(
        "--learner_frames_per_second",
        type=RATE,
        help="env frames per second that one GPU trains on, including replayed ones; default: a published figure",
    )
    parser.add_argument("--learner_cores", type=POSITIVE_WHOLE, default=16, help="cores of one shard, with --learner cpu")
    parser.add_argument(
        "--headroom",
        type=number("number in [0, 1)", lambda value: 0 <= value < 1),
        default=0.1,
        help="share of each actor's core that is kept free",
    )
    parser.add_argument("--pod_gigabits", type=POSITIVE, default=10.0, help="gigabits per second that a pod may send and receive")
    parser.add_argument(
        "--compression_ratio",
        type=number("number of 1 or more", lambda value: 1 <= value < float("inf")),
        help="compression ratio of frames on the wire",
    )
    parser.add_argument(
        "--game_steps",
        type=POSITIVE,
        default=1000.0,
        help="agent steps of a game: how often the bandit is asked, what replay holds of games that have not ended",
    )
    parser.add_argument(
        "--figures",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="output of herd bench --json, or of benchmarks.fan_in, fan_out, inference or replay",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--values", action="store_true", help="print values for the Helm chart")
    return parser
