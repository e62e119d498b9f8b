"""``herd train`` is stopped, or killed, in every way that occurs on a real machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.system.three_services import assert_nobody_left, left_in_order
from tests.system.whole_runs import (
    CATCH,
    ROOT,
    SECONDS,
    Run,
    env_frames,
    environment,
    herd,
    newest_checkpoint_name,
    read_points,
    signal_process,
    until,
)

WORDS = ("--learner.threads", "1", "--stop.env_frames", "null", "--learner.log_interval_seconds", "0.2")
NEVER = ("--learner.checkpoint_interval_seconds", "3600")


class Attached:
    """``herd train`` in its own session, with its output on a terminal or in a pipe."""

    def __init__(self, run_dir: Path, output: int, *, terminal: bool) -> None:
        self.run_dir = run_dir
        command = [sys.executable, "-m", "herd.cli.main", "train", CATCH, "--run_dir", str(run_dir), *WORDS, *NEVER]

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment() | {"TERM": "xterm"},
            stdin=output if terminal else subprocess.DEVNULL,
            stdout=output,
            stderr=output if terminal else subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=take_terminal if terminal else None,  # noqa: PLW1509  one system call, which takes no lock
        )

    def until_trained(self, reader: int) -> list[psutil.Process]:
        """Wait for a learning curve while reading the output; returns the run's children."""

        def trained() -> bool:
            assert self.process.poll() is None
            while select.select([reader], [], [], 0)[0]:
                os.read(reader, 65_536)
            return any(point["env_frames"] >= 5_000 for point in read_points(self.run_dir))

        until(trained, "frames to be trained on")
        return psutil.Process(self.process.pid).children(recursive=True)

    def finish(self) -> int:
        return self.process.wait(SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def attached(run_dir: Path, reader: int, writer: int, *, terminal: bool) -> Iterator[tuple[Attached, list[psutil.Process]]]:
    """A run that trains; its output can be read from ``reader``."""
    run = Attached(run_dir, writer, terminal=terminal)
    os.close(writer)
    try:
        yield run, run.until_trained(reader)
    finally:
        run.kill()


def test_closing_the_terminal_ends_the_run_cleanly(tmp_path: Path) -> None:
    """Every write to a closed terminal fails, so nothing can be printed. The checkpoint is still written."""
    reader, writer = pty.openpty()
    with attached(tmp_path / "run", reader, writer, terminal=True) as (run, children):
        os.close(reader)  # the kernel sends SIGHUP to the foreground processes
        assert run.finish() == 0
        assert_nobody_left(children)
    assert left_in_order(tmp_path / "run").learner_updates > 0


def test_a_run_continues_without_a_reader_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    """The run continues when its output has no reader, and stops cleanly on request."""
    reader, writer = os.pipe()
    with attached(tmp_path / "run", reader, writer, terminal=False) as (run, children):
        os.close(reader)
        signal_process(run.run_dir, "actor-0", signal.SIGSTOP)  # no training meanwhile
        # Past the next line of output, which is due every ten seconds; the curve has five points a second.
        num_points = len(read_points(run.run_dir))
        until(lambda: len(read_points(run.run_dir)) >= num_points + 60, "a line of output without a reader")
        signal_process(run.run_dir, "actor-0", signal.SIGCONT)
        frames = env_frames(run.run_dir)
        until(lambda: env_frames(run.run_dir) > frames + 5_000, "training without a reader")
        assert run.process.poll() is None
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: to the whole process group, which does not contain the children
        assert run.finish() == 0
        assert_nobody_left(children)
    assert left_in_order(tmp_path / "run").learner_updates > 0


def test_a_stop_request_during_the_start_is_obeyed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Run(run_dir, *NEVER) as run:
        run.until((run_dir / "logs" / "actor-0.log").exists, "the last child")
        children = psutil.Process(run.pid).children(recursive=True)
        assert run.stop(signal.SIGTERM) == 0, run.output
        assert_nobody_left(children)
    assert "did not stop properly" not in run.output


def test_a_killed_supervisor_leaves_no_child_and_a_resumable_run(tmp_path: Path) -> None:
    """SIGKILL leaves no time for cleanup: no orphan may keep ports or write files that the next run writes."""
    run_dir = tmp_path / "run"
    with Run(run_dir, *WORDS, "--learner.checkpoint_interval_seconds", "0.5") as run:
        run.until(lambda: newest_checkpoint_name(run_dir) is not None, "a checkpoint")
        children = psutil.Process(run.pid).children(recursive=True)
        assert len(children) == 3
        assert run.stop(signal.SIGKILL) == -signal.SIGKILL
        assert_nobody_left(children)
    checkpoint = newest_checkpoint_name(run_dir)
    assert checkpoint is not None
    more = env_frames(run_dir) + 10_000
    done = herd("train", "--resume", "--run_dir", run_dir, "--stop.env_frames", str(more), "--learner.threads", "1")
    assert done.returncode == 0, done.stderr + done.stdout
    assert left_in_order(run_dir).learner_updates > int(checkpoint)
