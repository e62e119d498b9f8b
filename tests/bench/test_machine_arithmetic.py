"""The arithmetic of measurements of a machine, and the stages in this process."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from rich.console import Console

from benchmarks.machine import __main__ as machine
from benchmarks.machine import learner, training
from benchmarks.machine.acting import measure_environment, measure_inference
from benchmarks.machine.measurement import Measurement, ceiling_agent_steps_per_second, measure, summarise
from benchmarks.machine.stages import stage_environment
from benchmarks.machine.synthetic import synthetic_unrolls
from benchmarks.machine.training import measure_learner
from benchmarks.machine.transport import measure_transport
from herd.components.cores.lstm import LSTMSettings
from herd.components.replay.local import LocalReplay
from herd.components.suites.catch import CatchSettings
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.config.loading import load_settings
from herd.config.run import NetworkSettings, RunSettings
from herd.config.services import ActorSettings, LearnerSettings
from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.protocols.unrolls.arrays import pack_arrays, receive_arrays
from herd.telemetry.training import PHASES
from herd.training.batch import TrainBatch
from herd.training.trainer import Launched, Trainer

SETTINGS = RunSettings(
    env=CatchSettings(tasks=("catch_instructed",), frame_height=10, frame_width=5, frame_stack=2, action_repeat=1),
    network=NetworkSettings(torso=MLPTorsoSettings(), core=LSTMSettings(size=8), language=True, last_action_and_reward=True),
    replay=LocalReplay(fraction=0.5),
    actor=ActorSettings(environments=4),
    learner=LearnerSettings(batch_size=8, device="cpu", threads=1, micro_batch_size=4),
)
COSTS = {"environment": 300.0, "inference": 50.0, "learner": 100.0, "transport": 50.0}


def test_costs_and_rates_are_computed_from_a_measurement() -> None:
    measured = Measurement(agent_steps=1000, wall_seconds=0.5, cpu_seconds=0.8)
    assert measured.agent_steps_per_second == pytest.approx(2000.0)
    assert measured.core_microseconds == pytest.approx(800.0)
    assert measured.wall_microseconds == pytest.approx(500.0)
    assert Measurement.from_json(measured.to_json()) == measured
    for text in ("", "Traceback", "[1, 2]", '{"agent_steps": 3}', '{"agent_steps": 0, "wall_seconds": 1.0, "cpu_seconds": 1.0}'):
        with pytest.raises(ValueError, match=r"not a measurement|empty measurement"):
            Measurement.from_json(text)


def test_a_summary_holds_medians_and_spreads() -> None:
    measurements = [Measurement(steps, 2.0, cpu) for steps, cpu in ((200, 1.0), (600, 1.2), (400, 3.0))]
    summary = summarise(measurements, action_repeat=4)
    assert summary.repeats == 3
    assert summary.agent_steps_per_second == 200.0
    assert summary.agent_steps_per_second_spread == (100.0, 300.0)
    assert summary.frames_per_second == 800.0
    assert summary.core_microseconds_per_agent_step == pytest.approx(5000.0)
    assert summary.core_microseconds_per_agent_step_spread == pytest.approx((2000.0, 7500.0))
    assert summary.wall_microseconds_per_agent_step == pytest.approx(5000.0)


def test_a_stage_on_a_gpu_bounds_the_ceiling_by_its_own_rate() -> None:
    parts = {
        "environment": summarise([Measurement(1000, 1.0, 0.3)], action_repeat=1),
        "learner": summarise([Measurement(4000, 1.0, 0.4, "H200")], action_repeat=1),
    }
    assert ceiling_agent_steps_per_second(parts, usable_cores=1) == pytest.approx(2500.0)
    assert ceiling_agent_steps_per_second(parts, usable_cores=64) == pytest.approx(4000.0)


def test_every_round_runs_all_stages_and_the_report_gives_the_share_of_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run_stage(stage: str, config: Path, *, seconds: float) -> Measurement:
        asked.append((stage, config.read_text()))
        return Measurement(10_000, seconds, COSTS[stage] / 100)

    def measure_system(config: Path, run_dir: Path, *, seconds: float, warmup_seconds: float) -> Measurement:
        assert warmup_seconds > 0
        asked.append(("system", run_dir.name))
        return Measurement((3000, 2700, 3300)[len(asked) // 5 - 1], 1.0, 1.9)

    monkeypatch.setattr(machine, "run_stage", run_stage)
    monkeypatch.setattr(machine, "measure_system", measure_system)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    report = machine.bench(load_settings([Path("pong")], ["--network.torso", "deep"], {}), seconds=2.0, repeats=3)
    assert [stage for stage, _ in asked] == [*COSTS, "system"] * 3
    assert len({text for stage, text in asked if stage != "system"}) == 1
    # Each run has its own directory: one must not resume or read another.
    assert len({text for stage, text in asked if stage == "system"}) == 3
    # 2 cores / 500 core-microseconds = 4,000 agent steps a second.
    assert report["ceiling"] == pytest.approx({"agent_steps_per_second": 4000.0, "frames_per_second": 16_000.0})
    assert report["share_of_ceiling"] == pytest.approx(0.75)
    for stage, cost in COSTS.items():
        assert report["stages"][stage]["core_microseconds_per_agent_step"] == pytest.approx(cost)
    assert report["stages"]["system"]["frames_per_second"] == pytest.approx(12_000.0)
    assert report["settings"]["network"]["torso"] == {"kind": "deep"}
    out = io.StringIO()
    machine.print_table(report, Console(file=out, width=80))
    for text in (*COSTS, "system", "-10% +10%", "reaches 75% of it", "16,000 env frames/s"):
        assert text in out.getvalue()
    assert "…" not in out.getvalue()


def test_the_learners_report_has_medians_and_time_outside_phases() -> None:
    def repeat(seconds: float, frames: float, updates: float, cpu: float, **phases: float) -> learner.Repeat:
        return learner.Repeat(seconds, frames, frames / 4, updates, cpu, dict.fromkeys(PHASES, 0.0) | phases)

    measured = [
        repeat(10.0, 100_000, 100, 12.5, forward_backward=8.0, wait=1.0),
        repeat(10.0, 120_000, 125, 12.0, forward_backward=7.5),
        repeat(5.0, 40_000, 40, 6.0, forward_backward=4.0, wait=0.4),
    ]
    report = learner.make_report(RunSettings(name="run"), measured, {"processor": "abacus"})
    assert report["frames_per_second"] == pytest.approx(10_000)
    assert report["frames_per_second_spread"] == pytest.approx([8_000, 12_000])
    assert report["agent_steps_per_second"] == pytest.approx(2_500)
    assert report["core_microseconds_per_agent_step"] == pytest.approx(500)
    assert report["update_milliseconds"] == pytest.approx(100.0)
    assert report["updates_per_second"] == pytest.approx(10.0)
    phases = {"forward_backward": 80.0, "wait": 10.0, "other": 10.0}
    assert report["phase_milliseconds"] == pytest.approx(dict.fromkeys(PHASES, 0.0) | phases)
    out = io.StringIO()
    learner.print_learner(report, Console(file=out, width=80))
    assert set(learner.MEANINGS) == {*PHASES, "other"}
    for text in (*learner.MEANINGS, *learner.MEANINGS.values(), "10,000 env frames/s"):
        assert text in out.getvalue()


def test_the_warm_up_is_not_measured() -> None:
    calls: list[None] = []

    def step() -> int:
        calls.append(None)
        return 7

    assert measure(step, seconds=0.0, warmup_seconds=0.0).agent_steps == 7
    assert len(calls) == 2


@pytest.mark.processes
def test_cpu_time_of_child_processes_is_counted() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        busy = psutil.Process(child.pid)

        def step() -> int:
            before = busy.cpu_times().user
            while busy.cpu_times().user < before + 0.1:
                time.sleep(0.01)
            return 1

        measured = measure(step, seconds=0.3, warmup_seconds=0.0)
        child.kill()
    # Each step lasts until the other process has used a tenth of a second of CPU time.
    assert measured.cpu_seconds >= 0.09 * measured.agent_steps


@pytest.mark.parametrize("stage", [measure_environment, measure_inference, measure_transport])
def test_stages_count_the_steps_of_every_environment(stage: Any) -> None:
    measured = stage(SETTINGS, seconds=0.05, warmup_seconds=0.0)
    assert measured.agent_steps % 4 == 0
    assert measured.wall_seconds >= 0.05
    assert measured.cpu_seconds > 0


def test_the_learner_stage_trains_as_often_as_the_run_and_counts_fresh_steps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[None] = []
    launch = Trainer.launch

    def counted(trainer: Trainer, batch: TrainBatch) -> Launched:
        updates.append(None)
        return launch(trainer, batch)

    monkeypatch.setattr(Trainer, "launch", counted)
    settings = SETTINGS.model_copy(update={"learner": SETTINGS.learner.model_copy(update={"sample_reuse": 3})})
    measured = measure_learner(settings, seconds=0.0, warmup_seconds=0.0)
    # A batch has 8 unrolls, 4 of them replayed. One batch is the warm-up.
    assert measured.agent_steps == 4 * SETTINGS.algorithm.unroll_length
    assert len(updates) == 2 * 3
    assert measured.device == "cpu"


def test_a_skipped_update_fails_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    real = synthetic_unrolls

    def overflowing(*args: object, **keywords: object) -> object:
        arrays = real(*args, **keywords)  # type: ignore[arg-type]
        arrays["rewards"][...] = 3e38
        return arrays

    monkeypatch.setattr(training, "synthetic_unrolls", overflowing)
    unclipped = SETTINGS.model_copy(update={"algorithm": SETTINGS.algorithm.model_copy(update={"reward_shaping": "none"})})
    with pytest.raises(RuntimeError, match="not finite"):
        measure_learner(unclipped, seconds=0.0, warmup_seconds=0.0)


@pytest.mark.parametrize("frame_stack", [1, 4])
def test_synthetic_unrolls_are_valid_messages(frame_stack: int) -> None:
    layout = UnrollLayout(
        unroll_length=5,
        frame_stack=frame_stack,
        frame_shape=(84, 84, 1),
        actions=discrete(6),
        num_parameters=6,
        state_size=8,
        instruction_length=3,
        num_tasks=1,
    )
    arrays = synthetic_unrolls(layout, 3, seed=1)
    frames = pack_arrays(arrays, "lz4")
    received = receive_arrays(frames, 3, layout, "lz4")
    for name, array in arrays.items():
        np.testing.assert_array_equal(received[name], array, err_msg=name)
    # No two unrolls are equal, and the frames compress about as well as a game's.
    assert len({arrays["frames"][row].tobytes() for row in range(3)}) == 3
    assert 10 < arrays["frames"].nbytes / len(frames[list(arrays).index("frames")]) < 500


def test_stages_use_the_tuned_allocator_and_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERD_LEARNER__BATCH_SIZE", "7")
    environment = stage_environment()
    assert "HERD_LEARNER__BATCH_SIZE" not in environment
    assert environment["MALLOC_MMAP_MAX_"] == "0"
