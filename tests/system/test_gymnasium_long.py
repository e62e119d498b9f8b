"""The shipped experiments of the gymnasium suite run to their ends, which takes several minutes each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.whole_runs import herd, read_report


@pytest.mark.learning
@pytest.mark.parametrize(("experiment", "least"), [("cartpole", 300.0), ("minigrid-empty", 0.85)])
def test_a_shipped_experiment_reaches_its_stated_return(tmp_path: Path, experiment: str, least: float) -> None:
    done = herd("train", experiment, "--run_dir", tmp_path / "run", timeout=3500)
    assert done.returncode == 0, done.stderr + done.stdout
    assert read_report(tmp_path / "run")["episode_return"]["mean_last_100"] >= least
