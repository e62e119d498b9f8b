"""``herd.debug`` runs all user code in the calling thread, with real services, and writes real files at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import herd
from herd.api.debugging import debug_settings
from herd.api.training import resolve_settings
from tests.system.whole_runs import ROOT, SECONDS, environment, read_points, read_report

MODULE = """
import json
import os
import threading

import gymnasium
import numpy as np
from gymnasium import spaces


SEEN = []


class Walk(gymnasium.Env):
    def __init__(self):
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        SEEN.append(("step", os.getpid(), threading.get_ident()))
        if len(SEEN) == FAIL_AT:
            if DOES == "raise":
                raise ZeroDivisionError("here")
            with open("runs/lonely/processes/paramserver-0.json") as file:
                os.kill(json.load(file)["pid"], 9)
        self.place += 1
        return np.full(3, self.place / 9, np.float32), float(action), self.place == 9, False, {}


FAIL_AT, DOES = 0, "raise"
"""
SCRIPT = """
import os, threading, logging
import herd, mine

handlers = logging.getLogger().handlers[:]
SHORT = dict(env={"suite": "gymnasium", "tasks": ["mine:Walk"], "vectorization": "async"}, network={"torso": "mlp"},
             actor={"environments": 4}, learner={"batch_size": 8, "threads": 1, "log_interval_seconds": 0.1})
run = herd.debug(SHORT, name="fine", stop={"env_frames": 1600})
here = ("step", os.getpid(), threading.get_ident())
print("steps", len(mine.SEEN), set(mine.SEEN) == {here})
print("updates", run.report["learner_updates"], run.settings.actor.count, logging.getLogger().handlers == handlers)
threads = threading.enumerate()  # pyzmq keeps one of its own
mine.FAIL_AT, mine.SEEN = 200, []
try:
    herd.debug(SHORT, name="broken", stop={"env_frames": 10**9})
except ZeroDivisionError as error:
    import traceback
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    print("failed", "train" in frames, "_unroll" in frames, frames[-1])
mine.SEEN, mine.DOES = [], "kill"
try:
    herd.debug(SHORT, name="lonely", stop={"env_frames": 10**9})
except herd.RunError as error:
    print("lost", error)
print("left", *[thread.name for thread in threading.enumerate() if thread not in threads])
"""


@pytest.mark.processes
def test_learner_and_environments_run_in_the_calling_thread(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    environ = environment() | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    said = {line.partition(" ")[0]: line.split()[1:] for line in done.stdout.splitlines()}
    steps, all_here = said["steps"]
    assert int(steps) >= 1600
    assert all_here == "True"
    updates, actors, same_handlers = said["updates"]
    # 8 unrolls of 20 steps make a batch. Resets of the environments are agent steps that count no frames.
    assert int(updates) == read_report(tmp_path / "runs/fine")["learner_updates"] >= 10
    assert (actors, same_handlers) == ("1", "True")
    assert said["failed"] == ["True", "True", "step"]
    assert said["left"] == []
    # The run ends in order and writes its report.
    assert said["lost"][:2] == ["paramserver-0", "ended:"]
    assert read_report(tmp_path / "runs/lonely")["env_frames"] >= 80
    assert read_points(tmp_path / "runs/fine")[-1]["policy_lag_mean"] <= 1.0
    for run in ("fine", "broken"):
        announced = json.loads((tmp_path / "runs" / run / "processes" / "paramserver-0.json").read_text())
        assert not Path(f"/proc/{announced['pid']}").exists()


@pytest.mark.processes
def test_the_command_stops_at_a_users_breakpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE.replace("SEEN.append((", "breakpoint()\n        SEEN.append(("))
    command = [sys.executable, "-m", "herd.cli.main", "train", "cartpole", "--debug", "--env.tasks", "mine:Walk", "--name", "looked-at"]
    environ = environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environ,
        input="p 'action', action\np 'place', self.place\nquit\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "mine.py" in done.stdout
    assert "('place', 0)" in done.stdout
    assert any(f"('action', {action})" in done.stdout for action in (0, 1))
    assert "bdb.BdbQuit" in done.stderr


def test_debug_settings_fit_one_thread() -> None:
    settings = debug_settings(resolve_settings("breakout", {"actor.count": 3, "actor.inference": "remote", "learner.compile": "default"}))
    assert (settings.actor.count, settings.actor.inference, settings.learner.compile, settings.learner.work_ahead) == (
        1,
        "local",
        "off",
        "off",
    )
    with pytest.raises(herd.SettingsError, match="agents: 2 agents cannot learn in one thread"):
        debug_settings(resolve_settings("catch", {"agents": 2}))
