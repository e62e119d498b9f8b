"""``herd experiments``: lists the shipped experiments, or prints one as a start for a user's own run file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.cli.options import CommandError, OneLineParser
from herd.config.errors import close_match
from herd.config.experiments import describe, shipped_experiments, suite_presets

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """List the shipped experiments, or print one; returns the exit code."""
    parser = OneLineParser(
        prog="herd experiments",
        description="Lists the experiments that herd train accepts by name. show prints one for editing: "
        "herd experiments show pong > mine.yaml",
    )
    parser.add_argument("action", nargs="?", choices=["show"], help="print an experiment")
    parser.add_argument("name", nargs="?", help="name of the experiment")
    options = parser.parse_args(argv)
    experiments, presets = shipped_experiments(), suite_presets()
    shipped = experiments | presets
    if options.action is None:
        width = max(map(len, shipped))
        for name, file in experiments.items():
            print(f"{name:<{width}}  {describe(file)}")
        print("\nPresets, given after an experiment: herd train pong atari-machado\n")
        for name, file in presets.items():
            print(f"{name:<{width}}  {describe(file)}")
    elif options.name is None:
        raise CommandError("show needs the name of an experiment (herd experiments lists them)")
    elif options.name in shipped:
        print(shipped[options.name].read_text(encoding="utf-8"), end="")
    else:
        raise CommandError(f"{options.name}: no such experiment{close_match(options.name, list(shipped))} (herd experiments lists them)")
    return 0
