"""The commands of docs/index.md run in an empty folder, with shorter training."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, herd

pytestmark = pytest.mark.processes

PAGE = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_commands_of_the_first_page_run(tmp_path: Path) -> None:
    [run_file] = re.findall(r"^```yaml\n(# mine\.yaml\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.yaml").write_text(run_file)
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    for words in (words[1:] for words in commands if words[0] == "herd" and words[1] != "doctor"):
        shorter = ["--stop.env_frames", "4000", "--learner.threads", "1"] if words[0] == "train" else []
        done = herd(*words, *shorter, folder=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"catch", "catch-explore", "pong", "mine"}
    left = {path.name for path in (tmp_path / "runs" / "catch").iterdir()}
    assert {"curve.png", "learning.png", "report.html", "config.yaml", "report.json", "logs"} <= left
    assert (tmp_path / "curves.png").exists()
