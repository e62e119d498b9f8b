"""The whole system on Catch: separate processes, loopback sockets, checkpoint, evaluation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUM_EVALUATION_EPISODES = 200


def herd(*words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "herd.cli.main", *words], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_catch_is_learned_through_separate_processes(tmp_path: Path, seed: int) -> None:
    run_dir = tmp_path / "catch"
    trained = herd("train", "experiments/catch.yaml", "--seed", str(seed), "--run_dir", str(run_dir), timeout=400)
    assert trained.returncode == 0, trained.stderr + trained.stdout

    report = json.loads((run_dir / "report.json").read_text())
    accounting = report["accounting"]
    assert accounting["generated"] == accounting["consumed"] + accounting["in_flight"] + sum(accounting["dropped"].values())
    assert accounting["consumed"] == report["env_frames"] >= 1
    assert (run_dir / "curve.png").stat().st_size > 0

    evaluated = herd("evaluate", str(run_dir), "--episodes", str(NUM_EVALUATION_EPISODES), "--json", timeout=120)
    assert evaluated.returncode == 0, evaluated.stderr
    score = json.loads(evaluated.stdout)
    assert score["tasks"]["catch"]["episodes"] == NUM_EVALUATION_EPISODES
    assert score["tasks"]["catch"]["mean"] >= 0.9
