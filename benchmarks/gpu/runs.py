"""Whole processes: the learner fed over the wire with made-up unrolls, and complete runs with real actors on some of the cores.

A run is ``herd train`` as a user starts it. Its rates are differences of the processes' own counters over the measured seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.gpu.records import spread
from benchmarks.machine.learner import measure_learner
from benchmarks.machine.stages import StageError, stage_environment
from herd.config.loading import load_settings
from herd.launch.readings import metrics_url
from herd.protocols.inference import metrics as inference_metrics
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu.records import Case, Cases, Numbers
    from herd.telemetry.scrape import Samples

TRAIN = (sys.executable, "-m", "herd.cli.main", "train")
# A run that is only measured: no end, and no checkpoint in between.
ENDLESS = ("--stop.env_frames", "null", "--stop.wall_seconds", "null", "--learner.checkpoint_interval_seconds", "1e9")
START_SECONDS = 120.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.1
CORES = (1, 2, 4, 8, 14)
"""Numbers of actors, each pinned to a core; the other cores of sixteen are for the learner, its I/O thread and the supervisor."""
FEEDERS = 6


def learner_cases(*, is_small: bool, seconds: float) -> Cases:
    """Return the cases of the learner over the wire."""
    fed = partial(fed_learner, seconds=seconds)
    if is_small:
        return {"catch": partial(fed, "catch", "--actor.count", "1")}
    feeders = ("--actor.count", str(FEEDERS), "--learner.queue_batches", "8")
    return {
        f"{experiment}, {batch_size}": partial(fed, experiment, "--learner.batch_size", str(batch_size), *feeders)
        for experiment, batch_size in (("atari-deep", 32), ("atari-deep", 128), ("atari-shallow", 32), ("atari-shallow", 128))
    } | {"breakout": partial(fed, "breakout", *feeders)}


def run_cases_of(*, is_small: bool, seconds: float, device: str) -> Cases:
    """Return the cases of whole runs."""
    whole = partial(measured_run, seconds=seconds, device=device)
    if is_small:
        return {
            "catch, 1 actor": partial(whole, "catch", 1),
            "catch, 1 actor, central": partial(whole, "catch", 1, "--actor.inference", "remote"),
        }
    central = ("--actor.inference", "remote")
    chosen: dict[str, Case] = {}
    for count in reversed(CORES):
        chosen[f"atari-deep, {count} actors"] = partial(whole, "atari-deep", count)
        chosen[f"atari-deep, {count} actors, central"] = partial(whole, "atari-deep", count, *central)
        if count == max(CORES):
            for experiment in ("atari-shallow", "breakout"):
                chosen[f"{experiment}, {count} actors"] = partial(whole, experiment, count)
            chosen[f"atari-shallow, {count} actors, central"] = partial(whole, "atari-shallow", count, *central)
            wide = ("--inference.batch_size", "224", "--inference.deadline_milliseconds", "0")
            chosen[f"atari-deep, {count} actors, central, batches of 224 at once"] = partial(whole, "atari-deep", count, *central, *wide)
    return chosen


def fed_learner(experiment: str, *words: str, seconds: float) -> Numbers:
    """Measure a learner that never waits for a game."""
    settings = load_settings([Path(experiment)], [*words, *ENDLESS, "--resume", "false"], {})
    settings = settings.model_copy(update={"learner": settings.learner.model_copy(update={"max_policy_lag": None})})
    repeats = 3
    report = measure_learner(settings, seconds=seconds / repeats, warmup_seconds=seconds / repeats, repeats=repeats)
    low, high = report["frames_per_second_spread"]
    return {
        "frames_per_second": {"median": report["frames_per_second"], "lowest": low, "highest": high},
        "update_milliseconds": report["update_milliseconds"],
        "phase_milliseconds": report["phase_milliseconds"],
        "core_microseconds_per_agent_step": report["core_microseconds_per_agent_step"],
        "feeders": settings.actor.count,
    }


def measured_run(experiment: str, count: int, *words: str, seconds: float, device: str) -> Numbers:
    """Measure ``herd train`` with ``count`` actors for ``seconds``, in four parts."""
    with tempfile.TemporaryDirectory(prefix="herd-gpu-") as folder:
        run_dir = Path(folder) / "run"
        command = [*TRAIN, experiment, "--run_dir", str(run_dir), "--resume", "false"]
        command += ["--actor.count", str(count), "--actor.pin_to_cpu", "true", "--learner.device", device, *ENDLESS, *words]
        started = time.monotonic()
        with _started(command, run_dir.with_suffix(".log")) as process:
            _until_trained(process, run_dir)
            start_seconds = time.monotonic() - started
            _pause(process, run_dir, seconds / 2)
            readings = [_read(run_dir)]
            with gpu_use() as used:
                for _ in range(4):
                    _pause(process, run_dir, seconds / 4)
                    readings.append(_read(run_dir))
    return {**_rates(readings), "start_seconds": start_seconds, "gpu_busy": used.share, "actors": count}


class _Reading:
    """The counters of all processes of a run at one time."""

    def __init__(self, at: float, samples: dict[str, Samples]) -> None:
        self.at = at
        self.samples = samples

    def total(self, service: str, name: str, **labels: str) -> float:
        """Sum over the processes of a service."""
        return sum(total(samples, name, **labels) for child, samples in self.samples.items() if child.startswith(service))


def _read(run_dir: Path) -> _Reading:
    samples = {}
    for file in sorted((run_dir / "processes").glob("*.json")):
        url = metrics_url(run_dir, file.stem)
        if url is not None:
            samples[file.stem] = scrape(url)
    return _Reading(time.monotonic(), samples)


def _rates(readings: list[_Reading]) -> Numbers:
    first, last = readings[0], readings[-1]

    def grown(service: str, name: str, before: _Reading = first, after: _Reading = last, **labels: str) -> float:
        return after.total(service, name, **labels) - before.total(service, name, **labels)

    frames, updates = training_metrics.LEARNER_ENV_FRAMES.name, grown("learner", training_metrics.LEARNER_UPDATES.name)
    rates = [grown("learner", frames, one, other) / (other.at - one.at) for one, other in itertools.pairwise(readings)]
    wall, num_frames = last.at - first.at, grown("learner", frames)
    if not num_frames:
        raise StageError("the learner consumed nothing")
    found: Numbers = {
        "frames_per_second": spread(rates) | {"mean": num_frames / wall},
        "learner_starved": grown("learner", training_metrics.LEARNER_STARVED.name) / wall,
        "updates_per_second": updates / wall,
        "phase_milliseconds": {
            phase: 1e3 * grown("learner", training_metrics.UPDATE_PHASE.name, phase=phase) / updates for phase in training_metrics.PHASES
        },
        "policy_lag": grown("learner", unroll_metrics.POLICY_LAG.name + "_sum")
        / max(1.0, grown("learner", unroll_metrics.POLICY_LAG.name + "_count")),
        "core_microseconds_per_frame": {
            service: 1e6 * grown(service, metrics.PROCESS_CPU.name) / num_frames
            for service in ("actor", "learner", "inference", "paramserver", "replay")
        },
    }
    if "inference-0" in last.samples:
        batches = grown("inference", inference_metrics.INFERENCE_BATCH.name + "_count")
        trips = grown("actor", inference_metrics.ACTOR_ROUND_TRIP.name + "_count")
        found["inference"] = {
            "busy": grown("inference", inference_metrics.INFERENCE_COMPUTE.name) / wall,
            "environments_per_batch": grown("inference", inference_metrics.INFERENCE_BATCH.name + "_sum") / max(1.0, batches),
            "batches_per_second": batches / wall,
            "round_trip_milliseconds": 1e3 * grown("actor", inference_metrics.ACTOR_ROUND_TRIP.name + "_sum") / max(1.0, trips),
        }
    return found


@contextlib.contextmanager
def _started(command: list[str], log_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log_file.open("wb") as log:
        # In a session of its own, so that Ctrl-C reaches this process alone, which then ends the run.
        process = subprocess.Popen(
            command, env=stage_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            # Nothing of the run is kept, so it need not write checkpoints and draw curves.
            tree = (
                [] if process.poll() is not None else [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            )
            for each in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(tree, timeout=STOP_SECONDS)
            process.wait()


def _tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []  # it ended by itself


def _until_trained(process: subprocess.Popen[bytes], run_dir: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        _pause(process, run_dir, POLL_SECONDS)
        url = metrics_url(run_dir, "learner-0")
        with contextlib.suppress(ScrapeError):
            if url is not None and total(scrape(url), training_metrics.LEARNER_UPDATES.name) > 0:
                return
    raise StageError(f"no update within {START_SECONDS:g} s: {_last_line(run_dir)}")


def _pause(process: subprocess.Popen[bytes], run_dir: Path, seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise StageError(f"herd train ended with exit code {process.returncode}: {_last_line(run_dir)}")


def _last_line(run_dir: Path) -> str:
    lines = run_dir.with_suffix(".log").read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "(no output)"


class GpuUse:
    """The share of time in which the GPU ran any kernel, as its driver reports it; None if it does not."""

    def __init__(self) -> None:
        self.readings: list[float] = []

    @property
    def share(self) -> float | None:
        """Mean of the readings, 0 to 1."""
        return sum(self.readings) / len(self.readings) / 100 if self.readings else None


@contextlib.contextmanager
def gpu_use() -> Iterator[GpuUse]:
    """Read it four times a second inside the context."""
    used = GpuUse()
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=250"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield used  # no driver
        return

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                used.readings.append(float(line))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield used
    finally:
        process.terminate()
        process.wait()
        thread.join()
