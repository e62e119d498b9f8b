"""The command: starts a run in a folder, soaks it, and writes a report."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.soak.monitor import Monitor
from benchmarks.soak.network import NEAR, Network, NoNetworkError
from benchmarks.soak.picture import draw
from benchmarks.soak.promises import GOES_ON, MEMORY, ORDER, Breach
from benchmarks.soak.proxied_run import ProxiedRun, RunEndedError
from benchmarks.soak.report import Circumstances, as_text, exit_code, make_report, write_report
from benchmarks.soak.soak import Plan, Soak
from herd.config.loading import load_settings
from herd.transport.tcp import SILENCE_MILLISECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.run import RunSettings

OWN_SETTINGS = (
    ("--actor.count", "2"),  # a fault hits one of them, and the other must continue
    ("--learner.checkpoint_interval_seconds", "5"),  # about every fifth fault ends the learner, and little has to be learned again
    ("--learner.log_interval_seconds", "1"),
    ("--learner.credit_expires_seconds", "15"),  # instead of 60: one stop of 36 s outlasts it, and dozens of them fit into an hour
    ("--paramserver.index_lease_seconds", "15"),  # instead of 30, for the same reason
    ("--optimizer.schedule", "constant"),  # so that the run still learns at its end
    ("--stop.env_frames", "null"),
    ("--stop.wall_seconds", "null"),
)
"""Defaults, which the given settings override. Heartbeats have a fixed timeout of 30 s; a long stop lasts longer anyway."""
MEMORY_SAMPLES = 1800
"""Samples per process over the whole soak: every 2 s in an hour."""
MEMORY_LIMIT = 0.01
"""Maximum growth between the second and the last quarter at equal age."""
ARENA_BYTES = 1 << 20
"""Python's allocator takes memory from the system in units of this size. One more unit is not growth, even in a process of 65 MB."""
MEMORY_MINUTES = 30.0
"""Shorter soaks report growth without judging it: a quarter must contain several incarnations of each process."""


def main(argv: Sequence[str]) -> int:
    """Run a soak; return 0 if every promise was kept, 1 if not, 2 if the arguments are invalid."""
    arguments, words = _parse(argv)
    hosts = [("--placement.host", NEAR)] if arguments.network else []
    words = [str(arguments.file), *(word for pair in (*OWN_SETTINGS, *hosts) for word in pair), *words]
    folder: Path = arguments.output
    if folder.exists() and any(folder.iterdir()):
        print(f"soak: {folder}: not empty; choose another --output", file=sys.stderr)
        return 2
    settings = load_settings([arguments.file], words[1:], {})
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # both end it cleanly, with a report
    try:
        with ExitStack() as stack:
            network = stack.enter_context(Network(arguments.seed)) if arguments.network else None
            report = _soak(stack.enter_context(ProxiedRun(folder, words, network)), settings, arguments, words)
    except (NoNetworkError, RunEndedError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    write_report(folder, report)
    draw(report, folder / "soak.png")
    print(as_text(report))
    if report["num_faults"] < arguments.faults:
        print(f"soak: only {report['num_faults']} of {arguments.faults} faults fitted into the time", file=sys.stderr)
    if report["promises_broken"]:
        print(f"soak: broken: {', '.join(report['promises_broken'])}", file=sys.stderr)
    return exit_code(report)


def long_stop_seconds(settings: RunSettings) -> float:
    """Return a duration longer than every timeout of a silent process."""
    timeouts = (
        SILENCE_MILLISECONDS / 1000,
        settings.learner.credit_expires_seconds,
        settings.paramserver.index_lease_seconds,
    )
    return 1.2 * max(timeouts)


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__, allow_abbrev=False)
    parser.add_argument("file", type=Path, help="run file; settings after it go to the run, as with herd train")
    parser.add_argument("--minutes", type=float, default=60.0, help="from the moment the run trains")
    parser.add_argument("--faults", type=int, default=300, help="spread over that time; at most, where recovery is slow")
    parser.add_argument("--all-faults", action="store_true", help="go on beyond the minutes until every fault came")
    parser.add_argument(
        "--network", action="store_true", help="packets are lost, delayed and reordered, instead of connections cut: under `unshare -rn`"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the run")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run and of the report; new or empty")
    parser.add_argument("--recovery-limit", type=float, default=60.0, help="seconds after the end of a fault")
    arguments, words = parser.parse_known_args(argv)
    return arguments, [*words, "--seed", str(arguments.seed)]


def _soak(run: ProxiedRun, settings: RunSettings, arguments: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    seconds = arguments.minutes * 60
    plan = Plan(
        seconds=seconds,
        num_faults=arguments.faults,
        recovery_limit_seconds=arguments.recovery_limit,
        long_seconds=long_stop_seconds(settings),
        unrolls_per_message=settings.actor.environments,
        all_faults=arguments.all_faults,
    )
    say = _Speaker()
    interrupted, code = False, None
    monitor = Monitor(run, memory_interval_seconds=max(2.0, seconds / MEMORY_SAMPLES))
    soak = Soak(run, monitor, plan, Random(arguments.seed), say)
    try:
        try:
            soak.wait_until_it_trains()
            soak.go()
        except KeyboardInterrupt:
            interrupted = True
            say("interrupted: ending cleanly", True)
        soak.lift_all()
        lasted = monitor.seconds
        code = run.stop()
        if code != 0:
            monitor.broken(Breach(ORDER, f"exit code {code}: {run.output[-500:]}" if code is not None else "it had to be killed"))
    except (RunEndedError, TimeoutError) as error:
        lasted = monitor.seconds
        monitor.broken(Breach(GOES_ON, str(error)))
    finals = _final_reports(run)
    monitor.look_at_checkpoints()
    monitor.look_at_reports(finals)
    monitor.look_at_exits()
    monitor.close()
    circumstances = Circumstances(
        command=shlex.join(["python", "-m", "benchmarks.soak", *sys.argv[1:]]),
        date=time.strftime("%Y-%m-%d"),
        hardware={"machine": platform.machine(), "cpus": psutil.cpu_count(), "memory_bytes": psutil.virtual_memory().total},
        seed=arguments.seed,
        settings=words,
        seconds=lasted,
        exit_code=code,
        interrupted=interrupted,
    )
    report = make_report(circumstances, soak.story, monitor.record, finals, monitor.num_snapshots)
    if arguments.minutes >= MEMORY_MINUTES:
        _judge_memory(report)
    return report


def _final_reports(run: ProxiedRun) -> list[dict[str, Any]]:
    files = [directory / "report.json" for directory in run.agent_directories]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _judge_memory(report: dict[str, Any]) -> None:
    for name, row in report["memory"].items():
        share = row["between_quarters"] or 0.0
        if share > MEMORY_LIMIT and share * row["most_bytes"] > ARENA_BYTES:
            detail = f"{name} grew by {share:.2%} between the second and the last quarter"
            report["breaches"].append({"at": report["seconds"], "promise": MEMORY, "detail": detail})
            report["promises_broken"] = sorted({*report["promises_broken"], MEMORY})
            report["num_breaches"] += 1


class _Speaker:
    """Prints one line that is overwritten on a terminal; elsewhere only the important lines."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()

    def __call__(self, line: str, keep: bool) -> None:
        if self._is_terminal:
            print(f"\r\033[K{line}", end="\n" if keep else "", flush=True)
        elif keep:
            print(line, flush=True)
