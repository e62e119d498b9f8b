"""``herd bench learner``: its arithmetic on known counters, its errors, and one small run of the real processes."""

from __future__ import annotations

import io
import json

import psutil
import pytest
from rich.console import Console

from herd.bench import learner
from herd.bench.learner_table import MEANINGS, print_learner
from herd.cli.main import main
from herd.config.settings import RunSettings
from herd.telemetry.metric_names import PHASES
from tests.system.whole_runs import CATCH

HARDWARE: dict[str, object] = {"processor": "abacus"}


def repeat(*, seconds: float, frames: float, updates: float, cpu: float, phases: dict[str, float]) -> learner.Repeat:
    return learner.Repeat(seconds, frames, frames / 4, updates, cpu, {phase: phases.get(phase, 0.0) for phase in PHASES})


def test_the_report_has_medians_and_time_outside_phases() -> None:
    measured = [
        repeat(seconds=10.0, frames=100_000, updates=100, cpu=12.5, phases={"forward_backward": 8.0, "wait": 1.0}),
        repeat(seconds=10.0, frames=120_000, updates=125, cpu=12.0, phases={"forward_backward": 7.5, "wait": 0.0}),
        repeat(seconds=5.0, frames=40_000, updates=40, cpu=6.0, phases={"forward_backward": 4.0, "wait": 0.4}),
    ]
    report = learner.make_report(RunSettings(name="run"), measured, HARDWARE)
    assert report["frames_per_second"] == pytest.approx(10_000)
    assert report["frames_per_second_spread"] == pytest.approx([8_000, 12_000])
    assert report["agent_steps_per_second"] == pytest.approx(2_500)
    assert report["core_microseconds_per_agent_step"] == pytest.approx(500)
    assert report["update_milliseconds"] == pytest.approx(100.0)
    assert report["updates_per_second"] == pytest.approx(10.0)
    assert report["phase_milliseconds"]["forward_backward"] == pytest.approx(80.0)
    assert report["phase_milliseconds"]["wait"] == pytest.approx(10.0)
    assert report["phase_milliseconds"]["other"] == pytest.approx(10.0)


def test_the_table_explains_every_phase_within_80_columns() -> None:
    phases = dict.fromkeys(PHASES, 1.2345)
    report = learner.make_report(RunSettings(name="run"), [repeat(seconds=10.0, frames=1e6, updates=1, cpu=9.0, phases=phases)], HARDWARE)
    out = io.StringIO()
    print_learner(report, Console(file=out, width=80))
    assert set(MEANINGS) == {*PHASES, "other"}
    for phase, meaning in MEANINGS.items():
        assert phase in out.getvalue()
        assert meaning in out.getvalue()
    assert "100,000 env frames/s" in out.getvalue()


@pytest.mark.processes
def test_a_learner_that_ends_gives_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "learner", CATCH, "--learner.device", "cuda"]) == 1
    error = capsys.readouterr().err
    assert "cuda" in error.lower()
    assert error.count("\n") == 1


@pytest.mark.processes
def test_a_real_learner_of_two_shards_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(psutil.Process().children(recursive=True))
    words = ["--json", "--seconds", "1", "--warmup_seconds", "0.2", "--repeats", "2", "--actor.count", "2", "--actor.environments", "8"]
    assert main(["bench", "learner", CATCH, *words, "--learner.shards", "2", "--learner.threads", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["repeats"] == 2
    # Every unroll has 20 steps of one frame; every batch has 32 unrolls. A scrape reads the counters one by one while they grow.
    assert report["frames_per_second"] == pytest.approx(640 * report["updates_per_second"], rel=0.4)
    phases = report["phase_milliseconds"]
    assert all(phases[phase] > 0 for phase in ("agree", "assemble", "forward_backward", "optimizer", "publish"))
    assert sum(phases.values()) == pytest.approx(report["update_milliseconds"], rel=0.05)
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
