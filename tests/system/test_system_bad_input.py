"""Every mistake of the user gives one line on standard error and exit code 2, whichever process notices it, and changes nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from herd.cli.main import main
from tests.patience import patient
from tests.system.whole_runs import CATCH, ROOT, environment, herd, train


@pytest.fixture(scope="module")
def catch_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of Catch."""
    run_dir = tmp_path_factory.mktemp("runs") / "catch"
    train(run_dir, "--stop.env_frames", "3000")
    return run_dir


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_another_network_is_refused(catch_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in catch_run.rglob("*") if path.is_file()}
    words = ["train", "--resume", "--run_dir", str(catch_run), "--network.core", "lstm", "--stop.env_frames", "100000"]
    done = herd(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert str(catch_run / "checkpoints") in done.stderr
    assert {path: path.read_bytes() for path in catch_run.rglob("*") if path.is_file()} == before
    config = yaml.safe_load((catch_run / "config.yaml").read_text())
    assert config["network"]["core"] == {"kind": "none"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, "network": {**config["network"], "core": "lstm"}}))
    (tmp_path / "checkpoints").symlink_to(catch_run / "checkpoints")
    for command in ("evaluate", "watch"):
        assert main([command, str(tmp_path)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "weights of another network" in line
        assert str(tmp_path) in line


@pytest.mark.parametrize(
    ("service", "words", "named"),
    [
        ("learner", ("--listen", "127.0.0.1:{taken}"), "{taken}"),
        ("actor", ("--env.tasks", "cach"), "cach"),
    ],
)
def test_services_report_bad_input_in_one_line(tmp_path: Path, taken_port: int, service: str, words: tuple[str, ...], named: str) -> None:
    said = [word.format(taken=taken_port) for word in words]
    addresses = {"learner": ["paramserver"], "actor": ["learner", "paramserver"]}[service]
    said += [word for name in addresses for word in (f"--{name}", "tcp://127.0.0.1:1")]
    command = [sys.executable, "-m", f"herd_{service}", "--config", CATCH, "--run_dir", str(tmp_path), *said]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"{service}: ")
    assert named.format(taken=taken_port) in done.stderr


def test_bad_input_found_by_a_child_is_reported_in_one_line(catch_run: Path, tmp_path: Path) -> None:
    """A damaged checkpoint: the command has started all processes by the time the learner opens it."""
    run_dir = tmp_path / "run"
    done = herd("train", "--resume", "--run_dir", _damaged_copy(catch_run, run_dir), "--stop.env_frames", "100000")
    assert done.returncode == 2
    resumes, *said = done.stderr.splitlines()
    assert resumes.startswith("herd: resumes from ")
    assert len(said) == 1, done.stderr
    assert f"learner: {run_dir / 'checkpoints'}" in said[0]


def _damaged_copy(run_dir: Path, copy: Path) -> Path:
    for path in run_dir.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(run_dir)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes()[:100] if path.name == "model.safetensors" else path.read_bytes())
    return copy
