"""Whole runs on disks that fail during training: the run continues, the last checkpoint is kept, and with space everything resumes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from herd.run.tensors import load_checkpoint
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total
from tests.failing_disks import fill, no_space_beyond, read_only, small_disk
from tests.system.three_services import assert_nobody_left, left_in_order, processes_of
from tests.system.whole_runs import Run, free_ports, lineage_of, newest_checkpoint_name, pid_of, read_points

WORDS = ("--learner.log_interval_seconds", "0.2", "--learner.checkpoint_interval_seconds", "0.5")
DISK_BYTES = 40 << 20
"""What the check before the start requires, plus a margin. A checkpoint of Catch takes 160 kB; logs and other files some 20 kB."""


class WatchedRun(Run):
    """A run whose learner's metrics can be read even if it could not announce their address."""

    def __init__(self, run_dir: Path, *words: str) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/metrics"
        super().__init__(run_dir, *WORDS, "--placement.metrics_ports", f'{{"learner": {port}}}', *words)

    def metrics(self) -> Samples:
        """The learner's metrics; empty while it is not running."""
        try:
            return scrape(self._url)
        except ScrapeError:
            return {}

    def total(self, name: str, **labels: str) -> float:
        return total(self.metrics(), name, **labels)

    def until_it_trains(self) -> None:
        """Wait for more frames than now, whichever learner counts them."""
        before = self.total("herd_learner_env_frames_total")
        lineage = self.total("herd_weights_lineage")

        def more() -> bool:
            frames = self.total("herd_learner_env_frames_total")
            return frames > before + 5_000 or (frames > 5_000 and self.total("herd_weights_lineage") != lineage)

        self.until(more, "training")

    def until_checkpoints_fail(self) -> None:
        failures = self.total("herd_learner_checkpoint_failures_total")
        self.until(lambda: self.total("herd_learner_checkpoint_failures_total") >= failures + 2, "two failures")

    def until_checkpoints_go_on(self) -> None:
        before = newest_checkpoint_name(self.run_dir)
        self.until(lambda: newest_checkpoint_name(self.run_dir) not in {None, before}, "another checkpoint")

    def restart(self, process: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kill a process and wait for its replacement; ``meanwhile`` is called in between."""
        children = {child.pid for child in processes_of(self.run_dir)}
        # By its command, since a process that could not write has not announced itself.
        (child,) = [child for child in processes_of(self.run_dir) if f"herd_{process.partition('-')[0]}" in child.cmdline()]
        child.kill()
        self.until(lambda: f"{process} ended (SIGKILL)" in self.output, f"the end of {process}")
        meanwhile()
        self.until(lambda: not {child.pid for child in processes_of(self.run_dir)} <= children, f"another {process}")


def assert_whole_and_tidy(run_dir: Path, checkpoint: str) -> None:
    """Check that this checkpoint is the newest and readable, and that no partial files are left."""
    checkpoints = run_dir / "checkpoints"
    names = sorted(path.name for path in checkpoints.iterdir() if not path.name.endswith(".writing"))
    assert names[-1] == checkpoint
    assert load_checkpoint(checkpoints / checkpoint).learner_updates == int(checkpoint)


def assert_every_line_is_a_point(run_dir: Path) -> None:
    points = read_points(run_dir)  # raises if a line is not JSON
    assert len(points) > 2
    assert all("env_frames" in point for point in points)


def test_training_survives_a_full_disk_and_one_that_becomes_read_only(tmp_path: Path) -> None:
    """No process can write any more. A killed process is restarted, and with space everything resumes."""
    with small_disk(tmp_path / "run", DISK_BYTES) as run_dir:
        with WatchedRun(run_dir) as run:
            run.until(lambda: newest_checkpoint_name(run_dir) is not None, "a checkpoint")
            run.until_it_trains()
            ballast = fill(run_dir)
            run.until_checkpoints_fail()
            checkpoint = newest_checkpoint_name(run_dir)
            assert checkpoint is not None
            run.until_checkpoints_fail()
            run.until_it_trains()
            run.until(lambda: run.total("herd_learner_write_failures_total", file="metrics.jsonl") > 0, "a point that is lost")
            run.until(lambda: "writes failed: is the disk full?" in run.output, "a word to whoever looks")
            assert_whole_and_tidy(run_dir, checkpoint)

            run.restart("actor-0")
            run.until_it_trains()
            opened = lineage_of(run_dir)
            run.restart("learner-0", meanwhile=lambda: fill(run_dir))  # the failed write freed some space
            run.until_it_trains()
            run.until_checkpoints_fail()
            # The learner resumed from the last good checkpoint, under a lineage that could not be stored and that was never used before.
            assert lineage_of(run_dir) == opened == 1
            published = run.total("herd_weights_lineage")
            assert published > 10**12
            assert_whole_and_tidy(run_dir, checkpoint)

            ballast.unlink()
            run.until_checkpoints_go_on()
            run.until(lambda: lineage_of(run_dir) == published, "the lineage on disk")

            # ext4 makes itself read-only after an error. Open logs continue; a process that starts has to do without one.
            with read_only(run_dir):
                run.restart("learner-0")
                run.until_it_trains()
                run.until_checkpoints_fail()
                published = run.total("herd_weights_lineage")
            assert f"learner-0 runs without a log: {run_dir / 'logs' / 'learner-0.log'}: Read-only file system" in run.output
            run.until_checkpoints_go_on()
            children = processes_of(run_dir)
            assert run.stop(signal.SIGTERM) == 0, run.output
            assert_nobody_left(children)
        assert left_in_order(run_dir).state["lineage"] == published
        assert_every_line_is_a_point(run_dir)


def test_a_learner_that_cannot_write_reports_the_loss(tmp_path: Path) -> None:
    """The same without a separate file system: asked to stop, the run ends cleanly, and its exit code reports the loss."""
    run_dir = tmp_path / "run"
    with WatchedRun(run_dir) as run:
        run.until(lambda: newest_checkpoint_name(run_dir) is not None, "a checkpoint")
        learner = pid_of(run_dir, "learner-0")
        assert learner is not None
        with no_space_beyond(64, learner):
            run.until_checkpoints_fail()
            checkpoint = newest_checkpoint_name(run_dir)
            assert checkpoint is not None
            num_points = len(read_points(run_dir))
            run.until_it_trains()
            run.until_checkpoints_fail()
            assert len(read_points(run_dir)) == num_points
            assert_whole_and_tidy(run_dir, checkpoint)
        run.until_checkpoints_go_on()
        run.until(lambda: len(read_points(run_dir)) > num_points, "the curve to go on")
        # The log had no space either; afterwards it states how many lines are missing.
        log = run_dir / "logs" / "learner-0.log"
        run.until(lambda: "log lines were lost" in log.read_text(), "a line in the log")
        assert_every_line_is_a_point(run_dir)

        with no_space_beyond(64, learner):
            run.until_checkpoints_fail()
            checkpoint = newest_checkpoint_name(run_dir)
            assert checkpoint is not None
            children = processes_of(run_dir)
            run._process.send_signal(signal.SIGTERM)
            assert_nobody_left(children)
        assert run.wait() == 1, run.output
        assert "learner-0 could not write its last files" in run.output
    assert_whole_and_tidy(run_dir, checkpoint)
    assert not (run_dir / "report.json").exists()
    assert not list((run_dir / "checkpoints").glob("*.writing"))
