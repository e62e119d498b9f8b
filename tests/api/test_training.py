"""``import herd`` and ``herd.train`` in a user's script, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import herd
from tests.system.whole_runs import ROOT, SECONDS, environment, read_points, read_report

pytestmark = pytest.mark.processes

HEAVY = ("torch", "numpy", "pydantic", "zmq", "matplotlib", "gymnasium")
SHORT = "learner={'threads': 1, 'log_interval_seconds': 0.5}, stop={'env_frames': 6400}, actor={'environments': 8}"


def script(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start ``text`` as a Python script in ``folder``."""
    (folder / "script.py").write_text(text)
    command = [sys.executable, "-u", "script.py"]
    environ = environment() | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_importing_herd_loads_heavy_packages_lazily(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        f"import sys, herd\nprint([name for name in {HEAVY!r} if name in sys.modules], herd.__version__)\n"
        "print(sorted(set(herd.__all__) - set(dir(herd))))\n"
        "herd.load_run, herd.train\nprint('torch' in sys.modules)\nherd.load_policy\nprint('torch' in sys.modules)\n",
    )
    output, errors = process.communicate(timeout=SECONDS)
    assert errors == ""
    assert output.splitlines() == [f"[] {herd.__version__}", "[]", "False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = herd.tarin
    assert (Path(herd.__file__).parent / "py.typed").is_file()


def test_a_script_can_train_in_a_thread_act_and_be_interrupted(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        "import threading, numpy, herd\n"
        f"def work():\n    run = herd.train('catch', name='mine', {SHORT})\n"
        "    print('frames', run.array('env_frames')[-1], len(run.metrics), run.report['learner_updates'], run.settings.name)\n"
        "    policy = herd.load_policy(run, greedy=True)\n"
        "    print('action', policy.act(numpy.zeros((10, 5), numpy.uint8)) in (0, 1, 2))\n"
        "    try:\n        herd.train('catch', run_dir=run.directory)\n"
        "    except herd.RunError as error:\n        print('refused', error)\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n"
        "again = herd.train(resume=True, run_dir='runs/mine', progress=False, stop={'env_frames': 10**12})\n"
        "print('ended', again.report['env_frames'], len(again.checkpoints))\n",
    )
    folder = tmp_path / "runs" / "mine"
    try:
        deadline = time.monotonic() + SECONDS
        while not any(point["env_frames"] >= 9600 for point in read_points(folder)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert errors == ""
    lines = output.splitlines()
    assert lines[0] == "run directory: runs/mine"
    said = {line.partition(" ")[0]: line for line in lines}
    assert said["action"] == "action True"
    assert "not empty" in said["refused"]
    frames, points, updates, name = said["frames"].split()[1:]
    assert float(frames) >= 6400
    assert int(points) > 0
    assert int(updates) > 0
    assert name == "mine"
    assert said["ended"] == f"ended {read_report(folder)['env_frames']} 2"


def test_settings_refused_at_the_start_leave_no_files(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        "import herd\ntry:\n    herd.train('catch', progress=False, env={'tasks': ['cacth']})\n"
        "except herd.SettingsError as error:\n    print(error)\n",
    )
    output, errors = process.communicate(timeout=SECONDS)
    assert errors == ""
    assert output.startswith("env.tasks: ")
    assert output.count("\n") == 1
    assert list((tmp_path / "runs").iterdir()) == []
