"""``herd plan``: what a rate of frames needs, with the arithmetic."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.errors import CommandError, OneLineParser
from herd.config.arguments import split_arguments
from herd.config.experiments import find_run_file
from herd.config.loading import load_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from herd.config.settings import RunSettings


def run(argv: Sequence[str]) -> int:
    """Print a plan; returns the exit code."""
    options, words = _parser().parse_known_args(argv)
    if options.json and options.values:
        raise CommandError("--json and --values exclude each other")
    preset = find_run_file(options.preset) if options.preset is not None else None
    settings = _settings(preset, words)
    # --help and bad settings do without sockets, which the layout of an unroll brings along.
    from herd.bench.plan import PlanOptions, make_plan  # noqa: PLC0415
    from herd.bench.plan_figures import FiguresError, package_figures, with_own_figures  # noqa: PLC0415
    from herd.bench.plan_output import as_json, helm_values, print_plan  # noqa: PLC0415
    from herd.bench.weights_size import NoTorchError  # noqa: PLC0415

    asked = PlanOptions(
        frames_per_second=options.frames_per_second,
        learner=options.learner,
        learner_frames_per_second=options.learner_frames_per_second,
        learner_cores=options.learner_cores,
        headroom=options.headroom,
        pod_gigabits=options.pod_gigabits,
        compression_ratio=options.compression_ratio,
        game_steps=options.game_steps,
    )
    try:
        plan = make_plan(settings, asked, with_own_figures(package_figures(), options.figures))
    except (FiguresError, NoTorchError) as error:
        raise CommandError(str(error)) from error
    if options.values:
        print(helm_values(plan, experiment=preset, overrides=words), end="")
    elif options.json:
        print(json.dumps(as_json(plan), indent=2))
    else:
        print_plan(plan)
    return 0


def _settings(preset: Path | None, words: Sequence[str]) -> RunSettings:
    files, overrides = split_arguments(words)
    if files:
        raise CommandError(f"{files[0]}: unexpected word; a run file is given as --preset {files[0]}")
    return load_settings([preset] if preset is not None else [], overrides, os.environ)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd plan",
        description="Says what a rate of frames needs: actors, learner shards, parameter servers, network and memory, with the arithmetic "
        "and where each figure comes from. Settings are given as elsewhere: --actor.environments 64.",
    )
    above_zero = _number(lambda value: 0 < value < float("inf"), "number above 0")
    parser.add_argument("--frames_per_second", type=above_zero, required=True, help="env frames that the learner consumes")
    parser.add_argument(
        "--preset",
        type=Path,
        metavar="FILE",
        help="run file, or the name of a shipped experiment; without one: Breakout with every default",
    )
    parser.add_argument("--learner", choices=("gpu", "cpu"), default="gpu", help="what shards train on")
    parser.add_argument(
        "--learner_frames_per_second", type=above_zero, help="that one GPU trains on, replayed ones included; without: what was published"
    )
    parser.add_argument("--learner_cores", type=_whole, default=16, help="of one shard with --learner cpu")
    below_one = _number(lambda value: 0 <= value < 1, "number in [0, 1)")
    parser.add_argument("--headroom", type=below_one, default=0.1, help="share of each actor's core that stays free")
    parser.add_argument("--pod_gigabits", type=above_zero, default=10.0, help="that a pod may send, and receive, a second")
    parser.add_argument(
        "--compression_ratio", type=_number(lambda value: 1 <= value < float("inf"), "number of 1 or more"), help="of frames on the wire"
    )
    parser.add_argument("--game_steps", type=above_zero, default=1000.0, help="agent steps of a game: how often a bandit is asked")
    parser.add_argument(
        "--figures",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what herd bench --json, or benchmarks.fan_in or fan_out, printed",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--values", action="store_true", help="print values for the Helm chart")
    return parser


def _number(fits: Callable[[float], bool], name: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not fits(value):
            raise ValueError
        return value

    parse.__name__ = name  # what argparse calls it in its error message
    return parse


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


_whole.__name__ = "whole number above 0"
