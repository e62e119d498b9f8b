"""The commands and the code of docs/export.md work on a barely trained run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, SECONDS, environment, herd

pytestmark = pytest.mark.processes

PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")


def test_commands_and_code_on_the_page_run(tmp_path: Path) -> None:
    trained = herd("train", "cartpole", "--stop.env_frames", "2000", "--learner.threads", "1", folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    commands = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in "".join(commands).splitlines():
        program, *words = shlex.split(line, comments=True)
        if program == "herd":
            done = herd(*words, folder=tmp_path)
            assert done.returncode == 0, done.stderr
            assert words[0] != "export" or "different greedy actions: 0" in done.stdout
    assert {"cartpole.herd", "cartpole-episode.gif"} <= {file.name for file in (tmp_path / "runs").iterdir()}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text("import sys\n" + "\n".join(blocks) + "\nassert 'herd' not in sys.modules\n")
    # torch warns that torch.export will replace what the page uses.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    totals = dict(line.split() for line in done.stdout.splitlines())
    assert all(float(totals[name]) >= 8.0 for name in ("torch", "onnx"))
