"""The programs that are compared: what they are installed from, and how one trains a task."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.tasks import EPISODES, TASKS

CHECKOUT = Path(__file__).parents[2]
_TORCH = "torch==2.13.0"
SMALL = tuple(name for name, task in TASKS.items() if not task.game)
"""Tasks that take minutes. The others are games of Atari."""


@dataclass(frozen=True)
class Program:
    """A program with its packages from PyPI (none: this Python's), and the words of a command after its interpreter.

    ``{task}``, ``{seed}``, ``{frames}`` and ``{run}``, a folder that does not exist yet, are filled in.
    """

    title: str
    packages: tuple[str, ...]
    words: tuple[str, ...]
    lacks: frozenset[str] = frozenset()
    """Tasks that it cannot learn."""


PROGRAMS = {
    "herd": Program(
        "Herd",
        (),
        (
            *("-P", "-m", "herd.cli.main", "train", "{experiment}", "--env.suite", "{suite}", "--env.tasks", "{environment}"),
            *("--network.torso", "{torso}", "--seed", "{seed}", "--run_dir", "{run}"),
            *("--stop.env_frames", "{frames}", "--optimizer.schedule_env_frames", "{frames}"),
        ),
    ),
    "sb3": Program(
        "SB3 PPO",
        (
            _TORCH,
            "stable-baselines3==2.9.2",
            "sb3-contrib==2.9.2",
            "gymnasium[box2d,mujoco]==1.4.0",
            "ale-py==0.12.1",
            "opencv-python-headless",
        ),
        ("-m", "benchmarks.peers.sb3", "{task}", "{seed}"),
        frozenset({"breakout_deep"}),  # it has one network for pictures
    ),
    "appo": Program(
        "Sample Factory APPO",
        # It needs a gymnasium below 1, with which ale-py 0.12 registers no games.
        (_TORCH, "sample-factory==2.1.1", "box2d", "pygame", "mujoco==3.2.7", "imageio", "ale-py==0.10.1"),
        ("-m", "benchmarks.peers.appo", "{task}", "{seed}", "{run}"),
        frozenset({"dials_masked"}),  # it has no masks
    ),
    "envpool": Program(
        "PPO on envpool",
        (_TORCH, "envpool==1.2.5"),
        ("-m", "benchmarks.peers.envpool_ppo", "{task}", "{seed}"),
        frozenset({*SMALL, "breakout_deep"}),  # it plays Atari, with the network that CleanRL publishes
    ),
}
EXPERIMENTS = {
    "cartpole": "experiments/cartpole.yaml",
    "lunarlander": "experiments/lunarlander.yaml",
    "lunarlander_continuous": "experiments/lunarlander-continuous.yaml",
    "pendulum": "experiments/pendulum.yaml",
    "halfcheetah": "benchmarks/peers/halfcheetah.yaml",
    "dials": "experiments/dials.yaml",
    "dials_masked": "experiments/dials.yaml",
    "pong": "experiments/atari-fast.yaml",  # one experiment for all games, as the others have
    "breakout": "experiments/atari-fast.yaml",
    "breakout_deep": "experiments/atari-fast.yaml",
}
"""Herd's experiment for each task."""
_PLUGIN = CHECKOUT / "benchmarks/peers/plugin"
"""A folder with the metadata of an installed package, by which Herd finds the suite of `benchmarks.peers.herd_atari`."""


def python_of(name: str, environments: Path) -> Path:
    """Return the interpreter of a program, after installing it into ``environments/NAME`` if it is not there.

    Raises:
        SystemExit: pip failed.
    """
    packages = PROGRAMS[name].packages
    if not packages:
        return Path(sys.executable)
    folder = environments / name
    python = folder / "bin/python"
    ready = folder / "installed"
    if not ready.exists():
        print(f"{PROGRAMS[name].title}: installing {', '.join(packages)} into {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        if code := subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=False).returncode:
            raise SystemExit(f"{PROGRAMS[name].title} could not be installed: pip ended with exit code {code}")
        ready.touch()
    return python


def command_of(name: str, python: Path, *, task: str, seed: int, frames: int, run: Path) -> list[str]:
    """Return the command that trains ``task`` when it runs in the checkout."""
    values = {"task": task, "seed": seed, "frames": frames, "run": run, "experiment": CHECKOUT / EXPERIMENTS[task]}
    if game := TASKS[task].game:
        values |= {"suite": "recorded_atari", "environment": game, "torso": "deep" if TASKS[task].deep else "shallow"}
    else:
        values |= {"suite": "gymnasium", "environment": f"benchmarks.peers.tasks:{task}", "torso": "mlp"}
    return [str(python), *(word.format(**values) for word in PROGRAMS[name].words)]


def surroundings(episodes: Path) -> dict[str, str]:
    """Return the environment variables of a run whose environments write their episodes into ``episodes``."""
    path = os.pathsep.join([str(_PLUGIN), str(CHECKOUT)])
    return {**os.environ, EPISODES: str(episodes), "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
