from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from herd.bench.measurement import Measurement, ceiling_agent_steps_per_second, measure, summarise


def test_costs_and_rates_are_computed_from_a_measurement() -> None:
    measured = Measurement(agent_steps=1000, wall_seconds=0.5, cpu_seconds=0.8)
    assert measured.agent_steps_per_second == pytest.approx(2000.0)
    assert measured.core_microseconds == pytest.approx(800.0)
    assert measured.wall_microseconds == pytest.approx(500.0)
    assert Measurement.from_json(measured.to_json()) == measured


@pytest.mark.parametrize(
    "text",
    ["", "Traceback", "[1, 2]", '{"agent_steps": 3}', '{"agent_steps": 0, "wall_seconds": 1.0, "cpu_seconds": 1.0}'],
)
def test_an_invalid_measurement_is_an_error(text: str) -> None:
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


def test_the_ceiling_divides_all_cores_by_the_sum_of_costs() -> None:
    parts = {name: summarise([Measurement(1000, 1.0, cost / 1e3)], action_repeat=1) for name, cost in (("a", 300.0), ("b", 100.0))}
    assert ceiling_agent_steps_per_second(parts, usable_cores=2) == pytest.approx(5000.0)


def test_a_stage_on_a_gpu_bounds_the_ceiling_by_its_own_rate() -> None:
    parts = {
        "environment": summarise([Measurement(1000, 1.0, 0.3)], action_repeat=1),
        "learner": summarise([Measurement(4000, 1.0, 0.4, "H200")], action_repeat=1),
    }
    assert ceiling_agent_steps_per_second(parts, usable_cores=1) == pytest.approx(2500.0)
    assert ceiling_agent_steps_per_second(parts, usable_cores=64) == pytest.approx(4000.0)


def test_the_warm_up_is_not_measured() -> None:
    calls: list[None] = []

    def step() -> int:
        calls.append(None)
        return 7

    measured = measure(step, seconds=0.0, warmup_seconds=0.0)
    assert len(calls) == 2
    assert measured.agent_steps == 7


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
