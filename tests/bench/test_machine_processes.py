"""Measurements of a machine with real processes: what they measure, and that they leave none behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.machine import learner, stages, system
from benchmarks.machine.stages import StageError, run_stage
from benchmarks.machine.system import measure_system
from tests.patience import patient
from tests.system.whole_runs import CATCH

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
# A fake run that trains 100 agent steps a second, slower at the start, on a clock that runs 50 times too fast.
EVEN_RUN = """
import json, os, pathlib, signal, sys, threading
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run_dir = pathlib.Path(sys.argv[sys.argv.index("--run_dir") + 1])
run_dir.mkdir()
(run_dir / "pid").write_text(str(os.getpid()))
with (run_dir / "metrics.jsonl").open("a") as file:
    seconds, steps = 0, 0
    while not stop.wait(0.05):
        seconds += 1
        steps += 0 if seconds < 3 else 10 if seconds < 5 else 100
        line = json.dumps({"wall_seconds": float(seconds), "agent_steps": steps}) + chr(10)
        file.write(line[:9]); file.flush()
        file.write(line[9:]); file.flush()
(run_dir / "stopped").touch()
"""
# The command without its stages. It prints a line when the run has been started.
MEASURE_THE_SYSTEM = """
import sys
from benchmarks.machine import __main__, stages, system
def points(process, metrics, log_file, real=system._points):
    samples = real(process, metrics, log_file)
    yield next(samples)
    print(process.pid, flush=True)
    yield from samples
system._points = points
system.TRAIN = (sys.executable, "-c", sys.argv.pop(1))
__main__.STAGES = {}
stages.finish(__main__.main)
"""


def test_only_the_window_after_the_warm_up_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "TRAIN", (sys.executable, "-c", EVEN_RUN))
    measured = measure_system(tmp_path / "config.yaml", tmp_path / "run", seconds=5.0, warmup_seconds=3.0)
    assert measured.agent_steps_per_second == pytest.approx(100.0)
    assert measured.wall_seconds >= 5.0
    assert measured.cpu_seconds >= 0.0
    assert (tmp_path / "run" / "stopped").exists()
    assert not psutil.pid_exists(int((tmp_path / "run" / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_the_measured_run(number: signal.Signals) -> None:
    command = [sys.executable, "-c", MEASURE_THE_SYSTEM, EVEN_RUN, CATCH, "--seconds", "1e9"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        run = psutil.Process(int(process.stdout.readline()))
        try:
            process.send_signal(number)
            _, errors = process.communicate(timeout=patient(60))
            assert not run.is_running(), errors
        finally:
            if run.is_running():
                run.kill()
        assert process.returncode == 128 + number, errors
        assert "Traceback" not in errors


def test_a_run_that_ends_early_is_an_error_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "TRAIN", (sys.executable, "-c", "import sys; sys.exit('learner.port: in use')"))
    with pytest.raises(StageError, match=r"exit code 1: learner\.port: in use"):
        measure_system(tmp_path / "config.yaml", tmp_path / "run", seconds=1.0, warmup_seconds=0.0)


def test_a_stage_runs_in_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_stage("transport", Path(CATCH), seconds=0.1).agent_steps > 0
    with pytest.raises(StageError, match=r"transport: exit code 2: .*missing\.yaml"):
        run_stage("transport", tmp_path / "missing.yaml", seconds=0.1)
    monkeypatch.setattr(stages, "GRACE_SECONDS", -9.5)
    with pytest.raises(StageError, match=r"transport: no result after 0\.5 s"):
        run_stage("transport", Path(CATCH), seconds=10.0)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["benchmarks.machine", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["benchmarks.machine.learner", CATCH, "--seconds", "inf"], 2, "--seconds: should be a number above 0, not 'inf'"),
        (["benchmarks.machine.learner", CATCH, "--learner.device", "cuda"], 1, "cuda"),
    ],
    ids=["no file", "bad option", "a learner that ends"],
)
def test_what_cannot_be_measured_gives_one_line(words: list[str], code: int, part: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=patient(100))
    assert done.returncode == code, done.stderr
    assert part in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.soak
def test_a_real_learner_of_two_shards_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(psutil.Process().children(recursive=True))
    words = ["--json", "--seconds", "1", "--warmup_seconds", "0.2", "--repeats", "2", "--actor.count", "2", "--actor.environments", "8"]
    learner.main([CATCH, *words, "--learner.shards", "2", "--learner.threads", "1"])
    report = json.loads(capsys.readouterr().out)
    assert report["repeats"] == 2
    # Every unroll has 20 steps of one frame; every batch has 32 unrolls. A scrape reads the counters one by one while they grow.
    assert report["frames_per_second"] == pytest.approx(640 * report["updates_per_second"], rel=0.4)
    phases = report["phase_milliseconds"]
    assert all(phases[phase] > 0 for phase in ("agree", "assemble", "forward_backward", "optimizer", "publish"))
    assert sum(phases.values()) == pytest.approx(report["update_milliseconds"], rel=0.05)
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


BUSY_CHILD = """
import sys, time
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_cpu_time_of_the_runs_children_is_counted() -> None:
    before = system._tree_cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", BUSY_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert system._tree_cpu_seconds(os.getpid()) - before >= 0.25
