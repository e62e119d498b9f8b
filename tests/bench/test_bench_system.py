from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from herd.bench import system
from herd.bench.stages import StageError
from herd.bench.system import measure_system

pytestmark = pytest.mark.processes

if TYPE_CHECKING:
    from pathlib import Path

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
BAD_RUN = "import sys; sys.exit('learner.port: in use')"


def _train(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(system, "TRAIN", (sys.executable, "-c", script))


def test_only_the_window_after_the_warm_up_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _train(monkeypatch, EVEN_RUN)
    measured = measure_system(tmp_path / "config.yaml", tmp_path / "run", seconds=5.0, warmup_seconds=3.0)
    assert measured.agent_steps_per_second == pytest.approx(100.0)
    assert measured.wall_seconds >= 5.0
    assert measured.cpu_seconds >= 0.0


def test_the_measured_run_is_stopped_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _train(monkeypatch, EVEN_RUN)
    measure_system(tmp_path / "config.yaml", tmp_path / "run", seconds=1.0, warmup_seconds=0.0)
    assert (tmp_path / "run" / "stopped").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "run" / "pid").read_text()), 0)


def test_a_run_that_ends_early_is_an_error_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _train(monkeypatch, BAD_RUN)
    with pytest.raises(StageError, match=r"exit code 1: learner\.port: in use"):
        measure_system(tmp_path / "config.yaml", tmp_path / "run", seconds=1.0, warmup_seconds=0.0)


BUSY_CHILD = """
import sys, time
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_cpu_time_of_children_is_counted() -> None:
    before = system._tree_cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", BUSY_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert system._tree_cpu_seconds(os.getpid()) - before >= 0.25
