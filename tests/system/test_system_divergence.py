"""A run that can learn no more ends with one line and exit code 2, and leaves the checkpoints from before."""

from __future__ import annotations

from pathlib import Path

from herd.run.checkpoints import newest_checkpoint
from herd.run.tensors import is_finite, load_checkpoint
from tests.system.whole_runs import CATCH, ROOT, herd, read_points, read_report, train

LOSS = """
from herd.components.losses.api import LossOutput, Metric

def loss(forward):
    total = (forward.values.sum() + forward.parameters.sum()) * float("nan")
    return LossOutput(total, {"loss_mine": Metric(total.detach(), cost=1.0)})
"""


def test_weights_that_become_infinite_end_the_run_and_are_never_written(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    train(run_dir, "--stop.env_frames", "3000")
    before = newest_checkpoint(run_dir / "checkpoints")
    assert before is not None
    words = ("--optimizer.learning_rate", "3e38", "--stop.env_frames", "1000000", "--learner.checkpoint_interval_seconds", "0.1")
    done = herd("train", "--resume", "--run_dir", run_dir, "--learner.threads", "1", *words)
    assert done.returncode == 2, done.stderr + done.stdout
    assert " not finite after " in done.stderr
    assert "lower optimizer.learning_rate" in done.stderr
    newest = newest_checkpoint(run_dir / "checkpoints")
    assert newest == before  # a checkpoint of the first update would not be finite either
    assert all(is_finite(tensor) for group in load_checkpoint(newest).tensors.values() for tensor in group.values())


def test_a_loss_that_is_never_finite_ends_the_run_of_all_shards(tmp_path: Path) -> None:
    words = ("--learner.shards", "2", "--actor.links", "1")
    (tmp_path / "mine.py").write_text(LOSS)
    run = ("train", ROOT / CATCH, "--run_dir", tmp_path / "run", "--learner.threads", "1", "--learner.log_interval_seconds", "0.2")
    done = herd(*run, "--loss.kind", "custom", "--loss.function", "mine:loss", "--stop.env_frames", "1000000", *words, folder=tmp_path)
    assert done.returncode == 2, done.stderr + done.stdout
    assert "the gradients of 100 updates in a row were not finite" in done.stderr
    skipped = sum(point["updates_skipped"] for point in read_points(tmp_path / "run"))
    assert 100 <= skipped == read_report(tmp_path / "run")["learner_updates"]
    assert "updates were skipped: their gradients were not finite" in done.stdout
