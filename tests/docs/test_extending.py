"""The files of docs/extending.md work in an empty folder, and its commands work with real processes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, herd, read_report

pytestmark = pytest.mark.processes

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENOUGH = 0.6
"""Mean return of a game that starts anywhere on the path: the optimum is 0.8, random play gets about -1."""


def files_and_commands() -> tuple[dict[str, str], list[list[str]]]:
    files, commands = {}, []
    for language, text in BLOCK.findall(PAGE):
        named = re.match(r"# (\S+\.(?:py|yaml))\n", text)
        if named is not None:
            files[named[1]] = text
        elif language == "bash":
            commands += [shlex.split(line, comments=True) for line in text.splitlines()]
    return files, [words for words in commands if words[:1] == ["herd"]]


def test_files_and_commands_on_the_page_run(tmp_path: Path) -> None:
    files, commands = files_and_commands()
    assert {"walk.py", "walk.yaml", "torso.py", "loss.py", "hooks.py"} <= set(files)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for _, *words in commands:
        done = herd(*words, folder=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
    names = {words[words.index("--name") + 1] if "--name" in words else "walk" for words in commands if words[1] == "train"}
    assert {"walk", "walk-normed", "walk-loss"} <= names
    assert {path.name for path in (tmp_path / "runs").iterdir()} == names
    assert read_report(tmp_path / "runs" / "walk-stopped")["stopped"].startswith("the mean return is 0.")
    for name in names - {"walk-stopped"}:
        assert read_report(tmp_path / "runs" / name)["env_frames"] >= 20_000
    points = (tmp_path / "runs" / "walk-loss" / "metrics.jsonl").read_text().splitlines()
    assert 0.0 <= json.loads(points[-1])["ratios_clipped"] <= 1.0
    [evaluation] = (tmp_path / "runs" / "walk").glob("evaluation-*.json")
    assert json.loads(evaluation.read_text())["tasks"][0]["mean"] >= ENOUGH
    assert read_report(tmp_path / "runs" / "walk-normed")["tasks"]["walk:make"]["episode_return"]["mean_last_100"] >= ENOUGH
