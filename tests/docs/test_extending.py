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
    assert {"walk.py", "walk.yaml", "torso.py", "core.py", "loss.py", "hooks.py"} <= set(files)
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def run(*words: str) -> None:
        done = herd(*words, folder=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"

    # What the page trains one by one with each part of its own.
    parts = {words[words.index("--name") + 1]: words[4:] for words in commands if "--name" in words}
    assert parts.keys() == {"walk-normed", "walk-core", "walk-loss", "walk-stopped"}
    for words in commands:
        if "--name" not in words:
            run(*words[1:])
    [evaluation] = (tmp_path / "runs" / "walk").glob("evaluation-*.json")
    assert json.loads(evaluation.read_text())["tasks"][0]["mean"] >= ENOUGH
    run("train", "control", "walk.yaml", *parts["walk-core"], "--stop.env_frames", "4000")
    # The others fit together: the network and the loss learn until the hook ends the run, long before its last frame.
    run("train", "control", "walk.yaml", *parts["walk-normed"], *parts["walk-loss"], *parts["walk-stopped"])
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"walk", "walk-core", "walk-stopped"}
    assert read_report(tmp_path / "runs" / "walk-core")["env_frames"] >= 4000
    assert read_report(tmp_path / "runs" / "walk-stopped")["stopped"].startswith("the mean return is 0.")
    points = (tmp_path / "runs" / "walk-stopped" / "metrics.jsonl").read_text().splitlines()
    assert 0.0 <= json.loads(points[-1])["ratios_clipped"] <= 1.0
