"""The status of a run: running, finished, stopped, crashed or killed, and whether its newest checkpoint is intact."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from herd.cli.main import main
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.run.processes import RunState, begin_session, end_session, run_state
from herd.run.tensors import save_checkpoint
from herd.telemetry import Telemetry
from herd.view.status import read_status


@pytest.mark.parametrize(
    ("exit_code", "was_asked", "message", "state"),
    [
        (0, False, "", "finished"),
        (0, True, "", "stopped"),
        (1, False, "actor-0 failed twice", "crashed"),
        (2, True, "learner: no such device", "crashed"),
        (1, True, "killed: the newest checkpoint is an older one", "killed"),
    ],
)
def test_a_session_records_how_it_ended(tmp_path: Path, exit_code: int, was_asked: bool, message: str, state: str) -> None:
    begin_session(tmp_path)
    assert run_state(tmp_path, has_processes=False) == RunState("running")  # this process stands in for herd train
    end_session(tmp_path, exit_code=exit_code, was_asked=was_asked, message=message)
    assert run_state(tmp_path, has_processes=False) == RunState(state, message)  # type: ignore[arg-type]
    assert run_state(tmp_path, has_processes=True) == RunState("running")  # processes started by hand


def test_a_session_without_a_recorded_end_counts_as_killed(tmp_path: Path) -> None:
    begin_session(tmp_path)
    record = json.loads((tmp_path / "session.json").read_text())
    (tmp_path / "session.json").write_text(json.dumps({**record, "pid": 2**22 + 1}))
    assert run_state(tmp_path, has_processes=False).state == "killed"
    begin_session(tmp_path)
    os.utime(tmp_path / "session.json", (1.0, 1.0))  # written by an earlier process with the same id
    assert run_state(tmp_path, has_processes=False).state == "killed"


@pytest.mark.parametrize("text", ["", "[]", '{"state": "running"}', '{"state": "bored", "message": "", "pid": 1}', '{"pid": "x"}'])
def test_an_invalid_session_file_counts_as_killed(tmp_path: Path, text: str) -> None:
    (tmp_path / "session.json").write_text(text)
    assert run_state(tmp_path, has_processes=False).state == "killed"


def test_a_report_newer_than_the_curve_means_a_clean_end(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert run_state(tmp_path, has_processes=False).state == "killed"
    (tmp_path / "report.json").write_text("{}")
    os.utime(tmp_path / "metrics.jsonl", (100.0, 100.0))
    for at, state in ((100.0, "ended"), (99.0, "killed")):
        os.utime(tmp_path / "report.json", (at, at))
        assert run_state(tmp_path, has_processes=False).state == state


def test_a_damaged_checkpoint_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text(dump_settings(RunSettings(run_dir=tmp_path)))
    for updates in (7, 42):
        save_checkpoint(tmp_path / "checkpoints", updates, {"model": {"weight": torch.ones(3)}}, {}, keep=2)
    status = read_status(tmp_path)
    assert (status.checkpoint, status.checkpoint_problem) == ("000000000042", None)
    file = tmp_path / "checkpoints" / "000000000042" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    status = read_status(tmp_path)
    assert status.checkpoint == "000000000042"
    assert status.checkpoint_problem is not None
    assert "model.safetensors is damaged" in status.checkpoint_problem
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "model.safetensors is damaged" in out
    assert any(str(tmp_path) in line and "000000000042 damaged" in line for line in out.splitlines())  # not wrapped


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"][ nonsense: {", "config.yaml:1: not valid YAML"),
        (b"\xff\xfe\x00", "config.yaml: cannot be read: not UTF-8 text"),
        (b"", "config.yaml: empty"),
        (b"[1, 2]", "config.yaml: must be a mapping of settings"),
    ],
)
def test_settings_that_cannot_be_read_are_named_with_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    for state in ("unknown", "finished"):
        assert main(["status", str(tmp_path)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"herd: {tmp_path}: {said}")
        assert main(["status", "--json", str(tmp_path)]) == 2
        [told] = json.loads(capsys.readouterr().out)
        assert (told["state"], told["message"].startswith(said)) == (state, True)
        begin_session(tmp_path)
        end_session(tmp_path, exit_code=0, was_asked=False, message="")


def test_the_processes_of_a_running_run_are_listed_with_what_they_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text(dump_settings(RunSettings(run_dir=tmp_path)))
    (tmp_path / "processes").mkdir()
    processes = [Telemetry("actor", "run", alive_seconds=limit) for limit in (60.0, 60.0, 0.0)]
    processes[0].set_ready(True)
    processes[1].set_ready(False, "waits for weights")
    try:
        ports = [*(process.serve("127.0.0.1", 0) for process in processes), 1]
        for number, port in enumerate(ports):
            (tmp_path / "processes" / f"actor-{number}.json").write_text(json.dumps({"pid": os.getpid(), "metrics_port": port}))
        assert main(["status", str(tmp_path)]) == 0
    finally:
        for process in processes:
            process.close()
    printed = capsys.readouterr().out
    listed = [" ".join(line.split()) for line in printed.splitlines()]
    assert listed[-4] == f"actor-0 ready {os.getpid()}"
    assert listed[-3] == f"actor-1 not ready {os.getpid()} waits for weights"
    assert listed[-2].startswith(f"actor-2 hanging {os.getpid()} the main loop has been silent for 0.")
    assert listed[-1] == f"actor-3 hanging {os.getpid()} no answer within 1 s"
    assert "1 ready, 1 not ready, 2 hanging" in printed


def test_what_a_run_went_on_without_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text(dump_settings(RunSettings(run_dir=tmp_path)))
    end_session(tmp_path, exit_code=0, was_asked=False, message="", warnings=("actor-3 is given up: it failed twice",))
    assert main(["status", str(tmp_path)]) == 0
    assert f"{tmp_path}: actor-3 is given up: it failed twice\n" in capsys.readouterr().out
