"""Runs every line of bad_inputs.yaml in this process; no run starts, so hundreds of lines take seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from herd.cli.main import COMMANDS, main
from tests.cli.refusals import answer, furnish

BAD_INPUTS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("bad_inputs.yaml").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad_inputs")
    furnish(folder)
    return folder


@pytest.mark.parametrize("case", BAD_INPUTS, ids=lambda case: case["command"])
def test_a_bad_input_gives_one_line_and_exit_code_2(case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, output, errors = answer(case["command"], case.get("environment", {}))
    assert (code, output, errors.count("\n")) == (2, "", 1), errors
    wanted = ".*".join(map(re.escape, case["answer"].split("...")))
    assert re.fullmatch(wanted, errors.strip()), f"{errors}\nis not\n{case['answer']}"
    assert not (folder / "runs").exists()  # a refused command leaves nothing behind


def test_the_list_covers_all_commands() -> None:
    assert len(BAD_INPUTS) >= 80
    assert len({(case["command"], str(case.get("environment"))) for case in BAD_INPUTS}) == len(BAD_INPUTS)
    assert set(COMMANDS) <= {word for case in BAD_INPUTS for word in case["command"].split()[1:2]}


def test_names_with_control_characters_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of a file, a folder's name and a table of runs: what others have written moves no cursor and colours nothing."""
    file = tmp_path / "evil.yaml"
    file.write_text('"\\e[2J\\e]0;owned\\a\\u202e": 1\n')
    run = tmp_path / "run\x1b[31m"
    assert main(["train", str(file)]) == 2
    assert main(["status", str(run)]) == 2
    run.mkdir()
    (run / "config.yaml").write_text("name: x\n")
    main(["status", str(run)])
    shown = "".join(capsys.readouterr())
    assert r"\x1b[2J\x1b]0;owned\x07\u202e" in shown
    assert r"run\x1b[31m" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)
