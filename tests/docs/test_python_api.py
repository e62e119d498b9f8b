"""The code of docs/python-api.md runs as one script in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, SECONDS, environment

pytestmark = pytest.mark.processes

PAGE = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")


def test_code_on_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    command = [sys.executable, "-W", "error", "page.py"]
    environ = environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == ""
    *_, total = done.stdout.splitlines()
    assert float(total) >= 8.0  # a game of CartPole lasts at least 8 steps
    assert {"-1.0", "1.0"} & set(done.stdout.splitlines())
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"catch", "balance"}
