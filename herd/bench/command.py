"""``herd bench``: measures each stage alone, then the whole system, and prints which share of the machine's ceiling the system reaches."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from herd.bench.measurement import Measurement, Summary, ceiling_agent_steps_per_second, summarise
from herd.bench.stages import DEFAULT_EXPERIMENT, STAGES, StageError, check_measurable, run_stage
from herd.bench.system import measure_system
from herd.cli.options import POSITIVE, POSITIVE_WHOLE, OneLineParser
from herd.config.loading import dump_settings, load_settings
from herd.config.loading.sources import split_arguments
from herd.config.settings import TORSOS
from herd.service.hardware import usable_cpus
from herd.service.machine import describe_hardware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.config.settings import RunSettings

SYSTEM = "system"
# After this time the learner's first updates are done, the queues are full, and games no longer start at the same time.
WARMUP_SECONDS = 5.0


def run(argv: Sequence[str]) -> int:
    """Measure and print. Return the exit code: 0, or 1 if a stage failed (one line on stderr)."""
    try:
        if argv and argv[0] == "learner":
            from herd.bench import learner  # noqa: PLC0415  one part, with options of its own

            learner.run(argv[1:])
        else:
            _run(argv)
    except StageError as error:
        print(f"herd: {error}", file=sys.stderr)
        return 1
    return 0


def _run(argv: Sequence[str]) -> None:
    options, words = _parser().parse_known_args(argv)
    settings = _settings(words, torso=options.torso)
    with _progress(options.repeats * (len(STAGES) + 1), quiet=options.json) as advance:
        report = bench(settings, seconds=options.seconds, repeats=options.repeats, advance=advance)
    if options.json:
        print(json.dumps(report))
    else:
        from herd.bench.table import print_table  # noqa: PLC0415  rich is not needed for JSON

        print_table(report)


def bench(settings: RunSettings, *, seconds: float, repeats: int, advance: Callable[[str], None]) -> dict[str, object]:
    """Measure ``settings`` on this machine: each stage and the whole system ``repeats`` times, ``seconds`` each.

    Each round measures all stages once, so that a machine that slows down over time affects all of them equally.
    ``advance`` is called with the name of each measurement that begins.

    Raises:
        StageError: a stage failed.

    """
    measured: dict[str, list[Measurement]] = {name: [] for name in (*STAGES, SYSTEM)}
    hardware = describe_hardware()
    with tempfile.TemporaryDirectory(prefix="herd-bench-") as directory:
        config = Path(directory) / "config.yaml"
        config.write_text(dump_settings(settings))
        for repeat in range(repeats):
            for stage in STAGES:
                advance(stage)
                measured[stage].append(run_stage(stage, config, seconds=seconds))
            advance(SYSTEM)
            run_dir = Path(directory) / f"run-{repeat}"
            measured[SYSTEM].append(measure_system(config, run_dir, seconds=seconds, warmup_seconds=WARMUP_SECONDS))
    return make_report(settings, measured, hardware, usable_cores=usable_cpus())


def make_report(
    settings: RunSettings, measured: dict[str, list[Measurement]], hardware: dict[str, object], *, usable_cores: float
) -> dict[str, object]:
    """Return medians, spreads and the share of the ceiling, ready for JSON. Rates count agent steps unless their name says frames."""
    action_repeat = settings.env.action_repeat
    stages: dict[str, Summary] = {name: summarise(repeats, action_repeat=action_repeat) for name, repeats in measured.items()}
    parts = {name: summary for name, summary in stages.items() if name != SYSTEM}
    ceiling = ceiling_agent_steps_per_second(parts, usable_cores=usable_cores)
    return {
        "share_of_ceiling": stages[SYSTEM].agent_steps_per_second / ceiling,
        "ceiling": {"agent_steps_per_second": ceiling, "frames_per_second": ceiling * action_repeat},
        "stages": {name: asdict(summary) for name, summary in stages.items()},
        "hardware": hardware,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings.model_dump(mode="json"),
    }


def _settings(words: Sequence[str], *, torso: str | None) -> RunSettings:
    files, overrides = split_arguments(words)
    files = files or [DEFAULT_EXPERIMENT]
    if torso is not None:
        overrides += ["--network.torso", torso]
    settings = load_settings(files, overrides, os.environ)
    check_measurable(settings)
    return settings


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="herd bench",
        usage="%(prog)s [options] [FILE] [--section.key value ...]\n       %(prog)s learner [options] FILE [--section.key value ...]",
        description="Measures each stage of a run alone and the whole system, on this machine, with nothing else running. "
        f"Without FILE: {DEFAULT_EXPERIMENT}. learner: at its limit, phase by phase (herd bench learner --help).",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--torso", choices=TORSOS, help="torso to measure instead of the file's network.torso")
    parser.add_argument("--seconds", type=POSITIVE, default=10.0, help="seconds measured per stage and repeat")
    parser.add_argument("--repeats", type=POSITIVE_WHOLE, default=3, help="number of repeats of each stage; the median is reported")
    return parser


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being measured, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=total, completed=-1)
        yield lambda name: progress.update(task, description=f"measuring: {name}", advance=1)
