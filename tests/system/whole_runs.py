"""Whole runs in real processes over loopback: starts them, observes them from outside, and sends signals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from herd.run.processes import metrics_address
from herd.telemetry.scrape import Samples, ScrapeError, scrape
from tests.patience import patient

ROOT = Path(__file__).parents[2]
CATCH = "experiments/catch.yaml"
SECONDS = patient(300.0)
"""Deadline for things that take seconds on an idle machine."""
SCRAPE_SECONDS = patient(10.0)
"""Time-out of a scrape: a busy process may take long to answer."""
SLOW = ("--env.step_seconds", "0.01")
"""Leaves the processor to tests beside this one: a run that waits for an event plays thousands of frames a second all the same."""
UNDRAWN = {"PYTHONPATH": f"{Path(__file__).parent / 'without_pictures'}{os.pathsep}{ROOT}"}
"""Hides matplotlib, which at the end of a run takes as long as a whole actor."""
RANDOM_CATCH = -0.2
"""Above random play's mean return over 100 games on a board of five columns, which is -0.6 with a standard error of 0.08."""


def environment() -> dict[str, str]:
    """This process's environment, without settings that would change the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HERD_")}


def herd(
    *words: str | Path, timeout: float = SECONDS, folder: Path = ROOT, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one ``herd`` command to its end."""
    command = [sys.executable, "-m", "herd.cli.main", *map(str, words)]
    environ = environment() | {"PYTHONPATH": str(ROOT)} | dict(environ or {})
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout, check=False)


def train(run_dir: Path, *words: str, file: str = CATCH) -> dict[str, Any]:
    """Run ``herd train`` until it stops by itself; returns its report after checking that the ledger balances."""
    done = herd("train", file, "--run_dir", run_dir, "--learner.threads", "1", *words, environ=UNDRAWN)
    assert done.returncode == 0, done.stderr + done.stdout
    # Registered environments are tried out before the start, and what was found is said.
    expected = re.compile(r"herd: (resumes from |(minigrid:)?[A-Z]\w*-\S*: )")
    assert [line for line in done.stderr.splitlines() if not expected.match(line)] == []
    report = read_report(run_dir)
    assert report["learner_updates"] > 0
    return report


def read_report(run_dir: Path) -> dict[str, Any]:
    """Return report.json after checking that its ledger balances."""
    report: dict[str, Any] = json.loads((run_dir / "report.json").read_text())
    accounting = report["accounting"]
    assert accounting["generated"] == accounting["consumed"] + accounting["in_flight"] + sum(accounting["dropped"].values())
    assert min(accounting["consumed"], accounting["in_flight"], *accounting["dropped"].values(), 0) == 0
    assert accounting["consumed"] == report["env_frames"] == sum(task["env_frames"] for task in report["tasks"].values())
    assert report["episode_return"]["episodes"] == sum(task["episode_return"]["episodes"] for task in report["tasks"].values())
    by_task = [task["accounting"] for task in report["tasks"].values()]
    assert all(own["generated"] == own["consumed"] + own["in_flight"] + sum(own["dropped"].values()) for own in by_task)
    assert [own["consumed"] for own in by_task] == [task["env_frames"] for task in report["tasks"].values()]
    # Frames whose task is unknown are dropped, and listed separately.
    rest = accounting.get("unattributed", {"generated": 0, "dropped": {}})
    assert accounting["generated"] == sum(own["generated"] for own in by_task) + rest["generated"]
    assert accounting["in_flight"] == sum(own["in_flight"] for own in by_task)
    for reason, count in accounting["dropped"].items():
        assert count == sum(own["dropped"].get(reason, 0) for own in by_task) + rest["dropped"].get(reason, 0)
    return report


def read_points(run_dir: Path) -> list[dict[str, Any]]:
    """The learning curve so far, without a line that is still being written."""
    try:
        text = (run_dir / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def pid_of(run_dir: Path, process: str) -> int | None:
    """Process id of the process that last announced itself under this name; None if there was none."""
    try:
        return int(json.loads((run_dir / "processes" / f"{process}.json").read_text())["pid"])
    except FileNotFoundError:
        return None


def signal_process(run_dir: Path, process: str, number: int) -> int:
    """Send a signal to the process that last announced itself under this name; returns its process id."""
    pid = pid_of(run_dir, process)
    assert pid is not None, f"no {process} has announced itself"
    os.kill(pid, number)
    return pid


def env_frames(run_dir: Path) -> int:
    """The env frames of the curve's newest point; 0 before the first."""
    return int([{"env_frames": 0}, *read_points(run_dir)][-1]["env_frames"])


def lineage_of(run_dir: Path) -> int:
    """The lineage that was last opened in this run."""
    return int(json.loads((run_dir / "lineage.json").read_text())["lineage"])


def metrics(run_dir: Path, process: str) -> Samples:
    """The metrics of a process that has announced itself; empty if it does not answer."""
    try:
        announced = json.loads((run_dir / "processes" / f"{process}.json").read_text())
        return scrape(f"{metrics_address(announced)}/metrics", SCRAPE_SECONDS)
    except (FileNotFoundError, ScrapeError):
        return {}


def newest_checkpoint_name(run_dir: Path) -> str | None:
    """Name of the newest checkpoint on disk, its number of learner updates; None before the first."""
    return max((path.name for path in (run_dir / "checkpoints").glob("[0-9]" * 12)), default=None)


def until(condition: Callable[[], object], what: str, *, seconds: float = SECONDS) -> None:
    """Poll for conditions that have no event to wait for, such as another process's files and counters."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)  # each check reads a whole curve or scrapes a process


def free_ports(count: int) -> list[int]:
    """Free ports below the range that the kernel uses for outgoing connections, so that they stay free while a process starts."""
    held: list[socket.socket] = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(socket.create_server(("127.0.0.1", 10_000 + secrets.randbelow(20_000))))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Process:
    """A command in the background, with its output in a file. Use as a context manager, which kills it at the end."""

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
        """Process id of the command itself."""
        return self._process.pid

    @property
    def output(self) -> str:
        """The output so far."""
        return self._output.read_text()

    def is_running(self) -> bool:
        """Whether the process is still running."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        return self._process.wait(SECONDS)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ask the process to end; returns its exit code."""
        self._process.send_signal(number)
        return self.wait()


class Run(Process):
    """``herd train`` of a slow Catch in the background, without a stop of its own."""

    def __init__(self, run_dir: Path, *words: str, file: str = CATCH, environ: Mapping[str, str] | None = None) -> None:
        self.run_dir = run_dir
        own = ("train", file, "--run_dir", run_dir, "--learner.threads", "1", "--stop.env_frames", "null", *SLOW)
        super().__init__(run_dir.with_name(f"{run_dir.name}.out"), "herd.cli.main", *own, *words, environ=UNDRAWN | dict(environ or {}))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the run continues."""

        def met() -> bool:
            assert self.is_running(), self.output
            return condition()

        until(met, what)

    def until_more_frames(self, more: int) -> None:
        """Wait until the learner has trained on ``more`` frames than now."""
        wanted = self.env_frames() + more
        self.until(lambda: self.env_frames() > wanted, f"{more} more frames")

    def until_replaced(self, process: str, pid: int) -> None:
        """Wait until ``process`` has announced itself with another id than ``pid``."""
        self.until(lambda: pid_of(self.run_dir, process) not in {None, pid}, f"another {process}")

    def env_frames(self) -> int:
        """The env frames of the curve's newest point."""
        return env_frames(self.run_dir)

    def signal(self, process: str, number: int) -> int:
        """Send a signal to a process of the run; returns its process id."""
        return signal_process(self.run_dir, process, number)
