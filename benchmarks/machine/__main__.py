"""Measures each stage of a run alone, then the whole system, and prints which share of the machine's ceiling the system reaches.

``python -m benchmarks.machine [FILE] [--json] [--seconds N] [--repeats N] [--section.key value ...]``, with nothing else running.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine.measurement import Measurement, Summary, ceiling_agent_steps_per_second, summarise
from benchmarks.machine.stages import DEFAULT_EXPERIMENT, STAGES, check_measurable, finish, run_stage
from benchmarks.machine.system import measure_system
from herd.cli.options import POSITIVE, POSITIVE_WHOLE, OneLineParser
from herd.config.loading import dump_settings, load_settings
from herd.config.loading.sources import split_arguments
from herd.service.host import OtherPrograms, describe_hardware, usable_cpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.config.run import RunSettings

SYSTEM = "system"
# After this time the learner's first updates are done, the queues are full, and games no longer start at the same time.
WARMUP_SECONDS = 5.0
COLUMNS = ("core-us\nper step", "min, max", "agent\nsteps/s", "min, max", "env\nframes/s")


def main(argv: Sequence[str]) -> None:
    """Measure and print.

    Raises:
        SettingsError: bad input.
        StageError: a stage failed.
    """
    parser = OneLineParser(
        prog="python -m benchmarks.machine",
        usage="%(prog)s [options] [FILE] [--section.key value ...]",
        description="Measures each stage of a run alone and the whole system, on this machine, with nothing else running. "
        f"Without FILE: {DEFAULT_EXPERIMENT}. A learner at its limit, phase by phase: python -m benchmarks.machine.learner.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--seconds", type=POSITIVE, default=10.0, help="seconds measured per stage and repeat")
    parser.add_argument("--repeats", type=POSITIVE_WHOLE, default=3, help="number of repeats of each stage; the median is reported")
    options, words = parser.parse_known_args(argv)
    files, overrides = split_arguments(words)
    settings = load_settings(files or [DEFAULT_EXPERIMENT], overrides, os.environ)
    check_measurable(settings)
    report = bench(settings, seconds=options.seconds, repeats=options.repeats)
    if options.json:
        print(json.dumps(report))
    else:
        print_table(report, Console())


def bench(settings: RunSettings, *, seconds: float, repeats: int) -> dict[str, Any]:
    """Measure ``settings`` on this machine: each stage and the whole system ``repeats`` times, ``seconds`` each.

    Each round measures all stages once, so that a machine that slows down over time affects all of them equally.

    Raises:
        StageError: a stage failed.

    """
    measured: dict[str, list[Measurement]] = {name: [] for name in (*STAGES, SYSTEM)}
    hardware, programs = describe_hardware(), OtherPrograms()
    with tempfile.TemporaryDirectory(prefix="herd-bench-") as directory:
        config = Path(directory) / "config.yaml"
        config.write_text(dump_settings(settings))
        for repeat in range(repeats):
            for stage in STAGES:
                _announce(stage, repeat, repeats)
                measured[stage].append(run_stage(stage, config, seconds=seconds))
            _announce(SYSTEM, repeat, repeats)
            run_dir = Path(directory) / f"run-{repeat}"
            measured[SYSTEM].append(measure_system(config, run_dir, seconds=seconds, warmup_seconds=WARMUP_SECONDS))
    if others := programs.line():
        print(f"{others}: the numbers are too low", file=sys.stderr)
    return make_report(settings, measured, hardware, usable_cores=usable_cpus())


def make_report(
    settings: RunSettings, measured: dict[str, list[Measurement]], hardware: dict[str, object], *, usable_cores: float
) -> dict[str, Any]:
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


def print_table(report: Mapping[str, Any], console: Console) -> None:
    """Print the report of `make_report` within 80 columns; the JSON object has more."""
    table = Table()
    table.add_column("stage", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, stage in report["stages"].items():
        if name == "system":
            table.add_section()
        cost, rate = stage["core_microseconds_per_agent_step"], stage["agent_steps_per_second"]
        table.add_row(
            name,
            f"{cost:,.1f}",
            _deviation(cost, stage["core_microseconds_per_agent_step_spread"]),
            f"{rate:,.0f}",
            _deviation(rate, stage["agent_steps_per_second_spread"]),
            f"{stage['frames_per_second']:,.0f}",
        )
    console.print(table)
    for line in _conclusions(report):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _conclusions(report: Mapping[str, Any]) -> list[str]:
    ceiling, hardware = report["ceiling"], report["hardware"]
    learner = report["stages"]["learner"]["device"]
    on_device = "" if learner == "cpu" else f", learner on {learner}"
    return [
        f"ceiling: {ceiling['agent_steps_per_second']:,.0f} agent steps/s, {ceiling['frames_per_second']:,.0f} env frames/s "
        f"({hardware['usable_cores']} cores / sum of core-us)",
        f"the whole system reaches {report['share_of_ceiling']:.0%} of it",
        f"{hardware['processor']}{on_device}; python {hardware['python']}, torch {hardware['torch']}; {report['date']}",
    ]


def _deviation(median: float, spread: tuple[float, float]) -> str:
    """Return the differences of the lowest and the highest repeat from the median."""
    low, high = spread
    return f"{low / median - 1:+.0%} {high / median - 1:+.0%}"


def _announce(name: str, repeat: int, repeats: int) -> None:
    print(f"measuring {name}, {repeat + 1} of {repeats}", file=sys.stderr)


if __name__ == "__main__":
    finish(main)
