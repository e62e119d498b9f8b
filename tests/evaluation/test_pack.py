"""A pack is played like the run that it was made of, and hostile archives are refused in one line."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import herd
from herd.api.runs import RunError
from herd.cli.main import main
from herd.evaluation.pack import unpack
from herd.evaluation.trained_run import load_trained_run
from tests.evaluation.conftest import CATCH


def packed(run: Path, *words: str) -> Path:
    assert main(["pack", str(run), *words]) == 0
    return run.with_name("run.herd")


def test_a_pack_plays_and_is_judged_like_its_run(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run({**CATCH, "logging": {"hooks": {"chat:Chat": {"url": "a secret"}}}, "run_dir": "/home/somebody/run"})
    (run / "report.json").write_text('{"episode_return": {"mean_last_100": 1.0}}')
    assert main(["evaluate", str(run), "--episodes", "20"]) == 0
    of_run = json.loads((run / "evaluation-250.json").read_text())
    file = packed(run)
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        assert b"secret" not in b"".join(map(archive.read, names))
        assert b"somebody" not in archive.read("config.yaml")
    folder = "checkpoints/000000000250"
    assert names == [*(f"{folder}/{name}" for name in ("manifest.json", "model.safetensors", "state.json")), "config.yaml",
                     "evaluation-250.json", "game.gif", "report.json"]  # fmt: skip
    one, other = (load_trained_run(place).agent.state_dict() for place in (run, unpack(file)))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    capsys.readouterr()
    assert main(["evaluate", "run.herd", "--episodes", "20"]) == 0
    assert main(["watch", "run.herd", "--view", "network", "--min_seconds", "0"]) == 0
    assert json.loads(Path("run-evaluation-250.json").read_text())["tasks"] == of_run["tasks"]
    assert Path("run-episode.gif").is_file()
    observation = np.zeros((6, 5, 1), np.uint8)
    actions = {int(herd.load_policy(place, greedy=True).act(observation)) for place in (run, file)}
    assert len(actions) == 1


def rewritten(file: Path, change: Callable[[dict[str, bytes]], None], *, compressed: bool = False) -> Path:
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    change(contents)
    other = file.with_name("other.herd")
    with zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return other


def with_setting(section: str, **values: object) -> Callable[[dict[str, bytes]], None]:
    def change(contents: dict[str, bytes]) -> None:
        config = yaml.safe_load(contents["config.yaml"])
        config[section] |= values
        contents["config.yaml"] = yaml.safe_dump(config).encode()

    return change


def test_hostile_and_damaged_packs_are_refused_in_one_line(make_run: Callable[..., Path], tmp_path: Path) -> None:
    file = packed(make_run(CATCH), "--no_game")
    outside = tmp_path / "outside"

    def refuses(change: Callable[[dict[str, bytes]], object], line: str, *, compressed: bool = False) -> None:
        other = rewritten(file, lambda contents: (change(contents), None)[1], compressed=compressed)
        with pytest.raises(RunError, match=line) as caught:
            herd.load_policy(other)
        assert "\n" not in str(caught.value)

    for name in (str(outside), "../outside", "checkpoints/../../outside", "agents/0/../config.yaml", "mine.py"):
        refuses(lambda contents, name=name: contents.update({name: b"x"}), "not a pack of herd pack: it contains")  # type: ignore[misc]
    assert not outside.exists()
    refuses(lambda _: None, "not a pack of herd pack: it contains", compressed=True)  # it may grow without bound
    refuses(lambda contents: contents.pop("config.yaml"), "it contains no config.yaml")
    refuses(lambda contents: contents.update({f"evaluation-{n}.json": b"" for n in range(70)}), "too many files")
    for change in (
        with_setting("env", suite="gymnasium", tasks=["subprocess:run"], kwargs={"args": ["touch", str(outside)]}),
        with_setting("network", torso={"kind": "custom", "code": "os:system"}),
        with_setting("env", tasks=["antigravity:Flight-v0"]),
    ):
        refuses(change, "names code to run")
    assert not outside.exists()
    model = "checkpoints/000000000250/model.safetensors"
    refuses(lambda contents: contents.update({model: contents[model][:-1] + b"?"}), "SHA-256 differs")
    refuses(lambda contents: contents.pop(model), "model.safetensors is missing")
    for cut in (50, 2000):
        other = tmp_path / "cut.herd"
        other.write_bytes(file.read_bytes()[:-cut])
        assert main(["evaluate", str(other)]) == 2
