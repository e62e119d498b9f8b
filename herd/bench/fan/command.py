"""``herd bench fan-in`` and ``herd bench fan-out``: options, progress, output."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from herd.bench.options import Parser, positive
from herd.bench.stages import StageError
from herd.config.arguments import split_arguments
from herd.config.curve_keys import EVERY_ROLE, check_curve_keys
from herd.config.loading import SettingsError, load_settings
from herd.config.settings import TORSOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from herd.config.settings import RunSettings

    Advance = Callable[[str, float], None]

ONE_IN = 100
"""Of the connections of ``fan-in``, how many are broken: enough to see that nothing is lost, too few to change the rate."""
MOST_ACTORS = 16_384
"""Sessions of one learner, connections of one server."""


def main(argv: Sequence[str]) -> int:
    """Measure and print; the exit code: 0 done, 2 bad input, 1 a process that failed (one line on stderr)."""
    from herd.bench.fan.limits import LimitError  # noqa: PLC0415  --help does without sockets
    from herd.bench.weights_size import NoTorchError  # noqa: PLC0415

    name, *words = argv
    try:
        report = _measure(name, words)
    except (SettingsError, LimitError, NoTorchError) as error:
        print(f"herd: {error}", file=sys.stderr)
        return 2
    except StageError as error:
        print(f"herd: {error}", file=sys.stderr)
        return 1
    return report


def _measure(name: str, words: Sequence[str]) -> int:
    parser = fan_in_parser() if name == "fan-in" else fan_out_parser()
    options, rest = parser.parse_known_args(words)
    settings = _settings(rest, name=name, torso=getattr(options, "torso", None), message=getattr(options, "unrolls_per_message", None))
    with _progress(quiet=options.json) as advance:
        report = _fan_in(settings, options, advance) if name == "fan-in" else _fan_out(settings, options, advance)
    if options.json:
        print(json.dumps(report))
    else:
        from herd.bench.fan import tables  # noqa: PLC0415  rich is not needed for JSON

        (tables.print_fan_in if name == "fan-in" else tables.print_fan_out)(report)
    return 0


def _fan_in(settings: RunSettings, options: argparse.Namespace, advance: Advance) -> Mapping[str, object]:
    from herd.bench.fan.fan_in import FanInOptions, measure_fan_in  # noqa: PLC0415

    return measure_fan_in(
        settings,
        FanInOptions(
            actors=options.actors,
            seconds=options.seconds,
            unrolls_per_second=options.unrolls_per_second,
            paced=options.paced,
            unrolls_per_message=options.unrolls_per_message,
            messages_per_actor=options.messages_per_actor,
            breaks=options.actors // ONE_IN if options.breaks is None else min(options.breaks, options.actors),
            processes=options.processes,
        ),
        advance=advance,
    )


def _fan_out(settings: RunSettings, options: argparse.Namespace, advance: Advance) -> Mapping[str, object]:
    from herd.bench.fan.fan_out import FanOutOptions, measure_fan_out  # noqa: PLC0415

    return measure_fan_out(
        settings,
        FanOutOptions(
            actors=options.actors,
            replicas=options.replicas,
            depth=options.depth,
            versions=options.versions,
            interval_seconds=options.interval_seconds,
            ask_seconds=options.ask_seconds,
            seconds=options.seconds,
            concurrent=options.concurrent,
            processes=options.processes,
            timeout_seconds=options.timeout_seconds,
        ),
        advance=advance,
    )


def _settings(words: Sequence[str], *, name: str, torso: str | None, message: int | None) -> RunSettings:
    files, overrides = split_arguments(words)
    if not files:
        overrides = ["--name", name, *overrides]
    if torso is not None:
        overrides += ["--network.torso", torso]
    if message is not None:
        overrides += ["--actor.environments", str(message)]
    settings = load_settings(files, overrides, os.environ)
    if name == "fan-in" and settings.learner.shards > 1:
        raise SettingsError("learner.shards: fan-in measures one shard's ingest; give 1, and multiply")
    check_curve_keys(settings.security, os.environ, EVERY_ROLE)
    return settings


def fan_in_parser() -> argparse.ArgumentParser:
    """Options of ``herd bench fan-in``."""
    parser = Parser(
        prog="herd bench fan-in",
        usage="%(prog)s [options] [FILE] [--section.key value ...]",
        description="Simulated actors send made-up unrolls to one learner's real I/O thread. Without FILE: the Atari defaults.",
        epilog="3,125 unrolls of 20 agent steps are 250,000 env frames.",
        allow_abbrev=False,
    )
    _common(parser)
    parser.add_argument("--seconds", type=positive(float), default=20.0, help="measured, after a warm-up (default: 20)")
    parser.add_argument(
        "--unrolls-per-second",
        type=_rate,
        default=3125.0,
        help="that the consumer takes at most; inf: all it can (default: 3125)",
    )
    parser.add_argument(
        "--paced", action="store_true", help="actors play as fast as --unrolls-per-second says, all together, instead of waiting for credit"
    )
    parser.add_argument(
        "--unrolls-per-message", type=positive(int), default=1, help="actor.environments: 1 is the most work per unroll (default: 1)"
    )
    parser.add_argument("--messages-per-actor", type=positive(int), help="end when every actor has sent so many, instead of --seconds")
    parser.add_argument("--breaks", type=_count, help="connections that are broken meanwhile (default: one in a hundred)")
    return parser


def fan_out_parser() -> argparse.ArgumentParser:
    """Options of ``herd bench fan-out``."""
    parser = Parser(
        prog="herd bench fan-out",
        usage="%(prog)s [options] [FILE] [--section.key value ...]",
        description="Weights go through a tree of real parameter servers to simulated clients. Without FILE: the Atari defaults.",
        epilog="5,000 actors that make 250,000 frames/s with one environment each ask every 1.6 s.",
        allow_abbrev=False,
    )
    _common(parser)
    parser.add_argument("--torso", choices=TORSOS, help="whose weights: network.torso instead of the file's")
    parser.add_argument("--replicas", type=_count, default=2, help="that the clients ask; 0: they ask the root (default: 2)")
    parser.add_argument(
        "--depth", type=positive(int), default=1, help="levels of replicas; each has half as many as the one below it (default: 1)"
    )
    parser.add_argument("--versions", type=positive(int), default=3, help="published and measured (default: 3)")
    parser.add_argument("--interval-seconds", type=positive(float), default=30.0, help="between versions (default: 30)")
    parser.add_argument("--ask-seconds", type=positive(float), default=1.6, help="between questions of a client (default: 1.6)")
    parser.add_argument("--seconds", type=positive(float), default=10.0, help="measured while nothing is published (default: 10)")
    parser.add_argument(
        "--concurrent", type=positive(int), default=64, help="requests under way at a time: all answers are in this memory (default: 64)"
    )
    parser.add_argument(
        "--timeout-seconds", type=positive(float), default=600.0, help="in which all must have the last version (default: 600)"
    )
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--actors", type=_actors, default=5000, help="simulated, each with a connection of its own (default: 5000)")
    parser.add_argument("--processes", type=positive(int), help="that simulate them (default: 2, or as many as open files call for)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def _rate(text: str) -> float:
    return math.inf if text == "inf" else positive(float)(text)


_rate.__name__ = "positive float"


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


_count.__name__ = "non-negative integer"  # what argparse calls it in its error message


def _actors(text: str) -> int:
    value = int(text)
    if not 0 < value <= MOST_ACTORS:
        raise argparse.ArgumentTypeError(f"{text} is not in 1..{MOST_ACTORS}, the places of one process")
    return value


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Advance]:
    """Show on stderr what goes on; nothing where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _what, _share: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda what, share: progress.update(task, description=what, completed=min(share, 1.0))
