"""``python -m benchmarks.machine.learner [FILE]``: measures the phases of an update of real learner shards at their limit.

The learner and the parameter server are the processes of ``herd train``. `benchmarks.machine.feeder` processes replace the actors and send
unrolls as fast as the shards accept them, so the learner never waits for a game.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.machine.stages import DEFAULT_EXPERIMENT, StageError, check_measurable, finish, stage_environment
from herd.cli.options import POSITIVE, POSITIVE_WHOLE, OneLineParser
from herd.config.loading import SettingsError, dump_settings, load_settings
from herd.config.loading.sources import split_arguments
from herd.launch.plan import PortError, Start, placed_here, plan_children
from herd.launch.readings import metrics_url
from herd.run.paths import CONFIG
from herd.service.host import describe_hardware
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from herd.config.run import RunSettings
    from herd.launch.plan import ChildPlan

START_SECONDS = 180.0
"""Time for imports of torch, the rendezvous, a first update, and compilation."""
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
# The measured run has no stop condition and writes no checkpoints. No unroll is dropped as stale, because the feeder's versions are zero.
OVERRIDES = (
    *("--stop.env_frames", "null", "--stop.wall_seconds", "null", "--resume", "false"),
    *("--learner.max_policy_lag", "null", "--learner.checkpoint_interval_seconds", "1e9"),
)
MEANINGS = {
    "wait": "for a batch in this shard's queue",
    "agree": "for the other shards",
    "replay": "for unrolls of the replay service",
    "assemble": "from the queue's blocks and replay",
    "host_to_device": "copy, or the start of one",
    "forward_backward": "losses, gradients, sum over shards",
    "optimizer": "clipping and step",
    "publish": "weights encoded and handed on",
    "other": "accounts, metrics, signals",
}


@dataclass(frozen=True, slots=True)
class Repeat:
    """One measured interval, over all shards."""

    wall_seconds: float
    env_frames: float
    agent_steps: float
    learner_updates: float
    cpu_seconds: float
    """Processor time of the shards' processes, including ingest; the feeders are not included."""
    phase_seconds: dict[str, float]
    """Mean over the shards."""


def main(argv: Sequence[str]) -> None:
    """Measure and print.

    Raises:
        SettingsError: bad input.
        StageError: a process failed.

    """
    parser = OneLineParser(
        prog="python -m benchmarks.machine.learner",
        usage="%(prog)s [options] [FILE] [--section.key value ...]",
        description="Feeds the learner of a run over the wire with synthetic unrolls, as fast as it accepts them, and prints where "
        f"the time of an update goes. Without FILE: {DEFAULT_EXPERIMENT}. --learner.shards N measures several; "
        "--actor.count N is the number of feeding processes.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--seconds", type=POSITIVE, default=10.0, help="seconds measured per repeat")
    parser.add_argument("--warmup_seconds", type=POSITIVE, default=5.0, help="seconds of warm-up before the first repeat")
    parser.add_argument("--repeats", type=POSITIVE_WHOLE, default=3, help="number of repeats; the median is reported")
    options, words = parser.parse_known_args(argv)
    files, overrides = split_arguments(words)
    settings = load_settings(files or [DEFAULT_EXPERIMENT], [*overrides, *OVERRIDES], os.environ)
    check_measurable(settings)
    try:
        report = measure_learner(settings, seconds=options.seconds, warmup_seconds=options.warmup_seconds, repeats=options.repeats)
    except PortError as error:
        raise SettingsError(str(error)) from error
    if options.json:
        print(json.dumps(report))
    else:
        print_learner(report, Console())


def measure_learner(settings: RunSettings, *, seconds: float, warmup_seconds: float, repeats: int) -> dict[str, Any]:
    """Feed one learner and read its counters ``repeats`` times, ``seconds`` apart, after the warm-up.

    Raises:
        PortError: no port is free for a server.
        StageError: a process ended, or the learner did not start training.
    """
    hardware = describe_hardware()
    with tempfile.TemporaryDirectory(prefix="herd-bench-") as directory, placed_here(settings) as placed:
        run_dir = Path(directory) / "run"
        run_dir.mkdir()
        (run_dir / CONFIG).write_text(dump_settings(settings))
        plans = plan_children(settings, run_dir, placed, stage_environment())
        with _started(plans, run_dir) as processes:
            shards = [plan.name for plan in plans if plan.service == "learner"]
            _until(processes, run_dir, lambda: all(_updates(run_dir, shard) > 0 for shard in shards))
            _pause(processes, run_dir, warmup_seconds)
            before = _read(run_dir, shards, processes)
            measured = []
            for _ in range(repeats):
                _pause(processes, run_dir, seconds)
                after = _read(run_dir, shards, processes)
                measured.append(_difference(before, after, shards, settings))
                before = after
    return make_report(settings, measured, hardware)


def make_report(settings: RunSettings, measured: Sequence[Repeat], hardware: dict[str, object]) -> dict[str, Any]:
    """Return medians over the repeats, and the spread of the main figures."""
    rates = [repeat.env_frames / repeat.wall_seconds for repeat in measured]
    phases = {
        phase: 1e3 * statistics.median(repeat.phase_seconds[phase] / repeat.learner_updates for repeat in measured)
        for phase in measured[0].phase_seconds
    }
    update = 1e3 * statistics.median(repeat.wall_seconds / repeat.learner_updates for repeat in measured)
    return {
        "frames_per_second": statistics.median(rates),
        "frames_per_second_spread": [min(rates), max(rates)],
        "agent_steps_per_second": statistics.median(repeat.agent_steps / repeat.wall_seconds for repeat in measured),
        "core_microseconds_per_agent_step": 1e6 * statistics.median(repeat.cpu_seconds / repeat.agent_steps for repeat in measured),
        "updates_per_second": 1e3 / update,
        "update_milliseconds": update,
        "phase_milliseconds": {**phases, "other": max(0.0, update - sum(phases.values()))},
        "repeats": len(measured),
        "seconds": sum(repeat.wall_seconds for repeat in measured),
        "hardware": hardware,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings.model_dump(mode="json"),
    }


def print_learner(report: Mapping[str, Any], console: Console) -> None:
    """Print the report of `benchmarks.machine.learner.make_report`."""
    update = report["update_milliseconds"]
    table = Table()
    table.add_column("phase", no_wrap=True)
    for heading in ("ms per\nupdate", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for phase, milliseconds in report["phase_milliseconds"].items():
        table.add_row(phase, f"{milliseconds:,.2f}", f"{milliseconds / update:.0%}", f"[dim]{MEANINGS[phase]}[/dim]")
    table.add_section()
    table.add_row("update", f"{update:,.2f}", "100%", f"{report['updates_per_second']:,.1f} updates/s")
    console.print(table)
    low, high = report["frames_per_second_spread"]
    settings, hardware = report["settings"], report["hardware"]
    learner = settings["learner"]
    for line in (
        f"{report['frames_per_second']:,.0f} env frames/s ({low:,.0f} to {high:,.0f} in {report['repeats']} repeats), "
        f"{report['agent_steps_per_second']:,.0f} agent steps/s",
        f"{report['core_microseconds_per_agent_step']:,.1f} core-us of the learner's processes per agent step, ingest included",
        f"{settings['network']['torso']}, batch {learner['batch_size']} over {learner['shards']} shard(s), "
        f"{settings['actor']['count']} feeder(s); {hardware['processor']}; {report['date']}",
    ):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    samples: dict[str, Samples]
    cpu_seconds: float


def _read(run_dir: Path, shards: Sequence[str], processes: dict[str, subprocess.Popen[bytes]]) -> _Reading:
    samples = {shard: _samples(run_dir, shard) for shard in shards}
    cpu = [psutil.Process(processes[shard].pid).cpu_times() for shard in shards]
    return _Reading(time.monotonic(), samples, sum(times.user + times.system for times in cpu))


def _difference(before: _Reading, after: _Reading, shards: Sequence[str], settings: RunSettings) -> Repeat:
    def grown(name: str, **labels: str) -> float:
        return sum(total(after.samples[shard], name, **labels) - total(before.samples[shard], name, **labels) for shard in shards)

    env_frames = grown(training_metrics.LEARNER_ENV_FRAMES.name)
    updates = grown(training_metrics.LEARNER_UPDATES.name) / len(shards)
    if updates <= 0:
        raise StageError("learner: no update between two readings: increase --seconds")
    return Repeat(
        wall_seconds=after.at - before.at,
        env_frames=env_frames,
        agent_steps=env_frames / settings.env.action_repeat,
        learner_updates=updates,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        phase_seconds={phase: grown(training_metrics.UPDATE_PHASE.name, phase=phase) / len(shards) for phase in training_metrics.PHASES},
    )


def _samples(run_dir: Path, name: str) -> Samples:
    url = metrics_url(run_dir, name)
    if url is None:
        raise StageError(f"{name}: did not announce its address")
    try:
        return scrape(url)
    except ScrapeError as error:
        raise StageError(f"{name}: {error}") from error


def _updates(run_dir: Path, name: str) -> float:
    try:
        return total(_samples(run_dir, name), training_metrics.LEARNER_UPDATES.name)
    except StageError:
        return 0.0  # it is starting


def _until(processes: dict[str, subprocess.Popen[bytes]], run_dir: Path, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise StageError(f"learner: no update within {START_SECONDS:g} s: {_last_line(run_dir, 'learner-0')}")
        _pause(processes, run_dir, POLL_SECONDS)


def _pause(processes: dict[str, subprocess.Popen[bytes]], run_dir: Path, seconds: float) -> None:
    """Wait, and fail if a process ends."""
    deadline = time.monotonic() + seconds
    while True:
        for name, process in processes.items():
            if process.poll() is not None:
                raise StageError(f"{name}: ended with exit code {process.returncode}: {_last_line(run_dir, name)}")
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, POLL_SECONDS))


@contextmanager
def _started(plans: Sequence[ChildPlan], run_dir: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        try:
            for plan in plans:
                command = plan.command(Start(0, 0.0))
                if plan.service == "actor":
                    command[command.index("herd_actor")] = "benchmarks.machine.feeder"
                log = stack.enter_context(_log(run_dir, plan.name).open("wb"))
                # In a new session, so that Ctrl-C reaches only this process, which then ends the others.
                processes[plan.name] = subprocess.Popen(
                    command, env=plan.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            yield processes
        finally:
            _end(processes)


def _end(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    for process in processes.values():
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes.values():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _log(run_dir: Path, name: str) -> Path:
    return run_dir / f"{name}.log"


def _last_line(run_dir: Path, name: str) -> str:
    lines = _log(run_dir, name).read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "(no output)"


if __name__ == "__main__":
    finish(main)
