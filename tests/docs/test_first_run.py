"""The commands of docs/index.md run in an empty folder: Catch is learned, and other training is shortened."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, herd, read_points, read_report

pytestmark = pytest.mark.processes

PAGE = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_commands_of_the_first_page_run(tmp_path: Path) -> None:
    [run_file] = re.findall(r"^```yaml\n(# mine\.yaml\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.yaml").write_text(run_file)
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    for words in (words[1:] for words in commands if words[0] == "herd" and words[1] != "doctor"):
        shorter = ["--stop.env_frames", "4000", "--learner.threads", "1"] if words[0] == "train" and words != ["train", "catch"] else []
        done = herd(*words, *shorter, folder=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"catch", "catch-explore", "pong", "mine"}
    catch = tmp_path / "runs" / "catch"
    assert {"curve.png", "learning.png", "report.html", "config.yaml", "logs"} <= {path.name for path in catch.iterdir()}
    assert (tmp_path / "curves.png").exists()
    report = read_report(catch)
    assert report["env_frames"] >= 400_000
    # The curve begins before anything is learned: random play returns about -0.6.
    assert next(value for point in read_points(catch) if (value := point["episode_return_mean_100"]) is not None) < 0.0
    [evaluation] = catch.glob("evaluation-*.json")
    [task] = json.loads(evaluation.read_text())["tasks"]
    assert task["episodes"] == 200
    assert task["mean"] >= 0.95
    # The evaluation of the checkpoint agrees with the returns of training: 100 games there, 200 here.
    assert abs(task["mean"] - report["episode_return"]["mean_last_100"]) <= 0.1
