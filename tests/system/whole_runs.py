"""Whole runs in real processes over loopback: started, looked at from outside, signalled."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from herd.service.announcement import metrics_address
from herd.telemetry.scrape import Samples, ScrapeError, scrape
from tests.patience import patient

ROOT = Path(__file__).parents[2]
CATCH = "experiments/catch.yaml"
SECONDS = patient(300.0)
"""For whatever takes seconds on a free machine: others may be using it."""
RANDOM_CATCH = -0.2
"""Above random play's mean return over 100 games on a board of five columns: -0.6, standard error 0.08."""


def environment() -> dict[str, str]:
    """This process's, without settings that would change what is tested."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HERD_")}


def herd(*words: str | Path, timeout: float = SECONDS, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run one ``herd`` command to its end."""
    command = [sys.executable, "-m", "herd.cli.main", *map(str, words)]
    environ = environment() | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout, check=False)


def train(run_dir: Path, *words: str, file: str = CATCH) -> dict[str, Any]:
    """Run ``herd train`` until it stops by itself; returns a report whose ledger balances."""
    done = herd("train", file, "--run_dir", run_dir, "--learner.threads", "1", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    assert [line for line in done.stderr.splitlines() if not line.startswith("herd: resumes from ")] == []
    report = read_report(run_dir)
    assert report["learner_updates"] > 0
    return report


def read_report(run_dir: Path) -> dict[str, Any]:
    """report.json, after a look at its ledger."""
    report: dict[str, Any] = json.loads((run_dir / "report.json").read_text())
    accounting = report["accounting"]
    assert accounting["generated"] == accounting["consumed"] + accounting["in_flight"] + sum(accounting["dropped"].values())
    assert min(accounting["consumed"], accounting["in_flight"], *accounting["dropped"].values(), 0) == 0
    assert accounting["consumed"] == report["env_frames"] == sum(task["env_frames"] for task in report["tasks"].values())
    assert report["episode_return"]["episodes"] == sum(task["episode_return"]["episodes"] for task in report["tasks"].values())
    by_task = [task["accounting"] for task in report["tasks"].values()]
    assert all(own["generated"] == own["consumed"] + own["in_flight"] + sum(own["dropped"].values()) for own in by_task)
    assert [own["consumed"] for own in by_task] == [task["env_frames"] for task in report["tasks"].values()]
    # What nobody can tell the task of is dropped, and listed.
    rest = accounting.get("unattributed", {"generated": 0, "dropped": {}})
    assert accounting["generated"] == sum(own["generated"] for own in by_task) + rest["generated"]
    assert accounting["in_flight"] == sum(own["in_flight"] for own in by_task)
    for reason, count in accounting["dropped"].items():
        assert count == sum(own["dropped"].get(reason, 0) for own in by_task) + rest["dropped"].get(reason, 0)
    return report


def read_points(run_dir: Path) -> list[dict[str, Any]]:
    """The learning curve so far; a line being written is left out."""
    try:
        text = (run_dir / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def pid_of(run_dir: Path, process: str) -> int | None:
    """The process that announced itself under this name last; None before any did."""
    try:
        return int(json.loads((run_dir / "processes" / f"{process}.json").read_text())["pid"])
    except FileNotFoundError:
        return None


def metrics(run_dir: Path, process: str) -> Samples:
    """Of a process that has announced itself; nothing where it does not answer."""
    try:
        announced = json.loads((run_dir / "processes" / f"{process}.json").read_text())
        return scrape(f"{metrics_address(announced)}/metrics")
    except (FileNotFoundError, ScrapeError):
        return {}


def newest_checkpoint_name(run_dir: Path) -> str | None:
    """Learner updates of the newest checkpoint on disk; None before the first."""
    return max((path.name for path in (run_dir / "checkpoints").glob("[0-9]" * 12)), default=None)


def until(condition: Callable[[], bool], what: str, *, seconds: float = SECONDS) -> None:
    """For what has no event to wait for: another process's files and counters."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)  # a look reads a whole curve or asks a process for its metrics


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the kernel gives to outgoing connections: they stay free while a process starts."""
    held: list[socket.socket] = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(socket.create_server(("127.0.0.1", 10_000 + secrets.randbelow(20_000))))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Process:
    """One command in the background, its output in a file. Use as a context manager: nothing stays behind."""

    def __init__(self, output: Path, module: str, *words: str | Path, environ: Mapping[str, str] | None = None) -> None:
        self._output = output
        variables = environment() | dict(environ or {})
        with output.open("w") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, words)], cwd=ROOT, env=variables, stdout=stream, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Of the command itself."""
        return self._process.pid

    @property
    def output(self) -> str:
        """What it said so far."""
        return self._output.read_text()

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Its exit code, once it ends."""
        return self._process.wait(SECONDS)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ask it to end; returns its exit code."""
        self._process.send_signal(number)
        return self.wait()


class Run(Process):
    """``herd train`` on Catch in the background."""

    def __init__(self, run_dir: Path, *words: str) -> None:
        self.run_dir = run_dir
        output = run_dir.with_name(f"{run_dir.name}.out")
        super().__init__(
            output, "herd.cli.main", "train", CATCH, "--run_dir", run_dir, "--learner.threads", "1", "--stop.env_frames", "null", *words
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something while the run goes on."""

        def met() -> bool:
            assert self.is_running(), self.output
            return condition()

        until(met, what)

    def until_more_frames(self, more: int) -> None:
        """Wait until the learner trained on ``more`` frames than now."""
        wanted = self.env_frames() + more
        self.until(lambda: self.env_frames() > wanted, f"{more} more frames")

    def until_replaced(self, process: str, pid: int) -> None:
        """Wait until another than ``pid`` is ``process``."""
        self.until(lambda: pid_of(self.run_dir, process) not in {None, pid}, f"another {process}")

    def env_frames(self) -> int:
        """Of the curve's newest point."""
        points = read_points(self.run_dir)
        return int(points[-1]["env_frames"]) if points else 0
