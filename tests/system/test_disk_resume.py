"""A learner that starts from what a bad disk or a careless hand left: from the last good checkpoint, or with one line and exit code 2."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from herd.checkpoints.store import load_checkpoint
from tests.system.whole_runs import CATCH, ROOT, SECONDS, Run, environment, newest_checkpoint_name, read_report


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Catch with three checkpoints."""
    run_dir = tmp_path_factory.mktemp("runs") / "catch"
    words = ("--learner.checkpoint_interval_seconds", "0.5", "--learner.keep_checkpoints", "3")
    with Run(run_dir, *words) as run:
        run.until(lambda: len(checkpoints(run_dir)) == 3, "three checkpoints")
        assert run.stop() == 0, run.output
    return run_dir


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def checkpoints(run_dir: Path) -> list[Path]:
    """Oldest first."""
    return sorted((run_dir / "checkpoints").glob("[0-9]" * 12))


def resume(run_dir: Path, *words: str) -> tuple[int, list[str]]:
    """A learner that goes on from there and stops at once: its exit code and lines."""
    settings = ["--resume", "true", "--learner.port", "0", "--learner.threads", "1"]
    command = [sys.executable, "-m", "herd_learner", "--config", CATCH, "--run_dir", str(run_dir), *settings, *words]
    lines = []
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.rstrip())
            if "learner started" in line:
                process.terminate()
        return process.wait(SECONDS), lines


def test_the_last_good_one_is_used_and_one_line_names_all(run_dir: Path) -> None:
    good, flipped, torn = checkpoints(run_dir)
    with (torn / "model.safetensors").open("ab") as file:
        file.truncate(1000)
    data = bytearray((flipped / "optimizer.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (flipped / "optimizer.safetensors").write_bytes(data)
    updates = load_checkpoint(good).learner_updates

    code, lines = resume(run_dir)
    assert code == 0, lines
    (line,) = [line for line in lines if "warning" in line]
    assert "checkpoint skipped: " in line
    assert f"{torn}: model.safetensors has 1000 bytes, expected" in line
    assert f"{flipped}: optimizer.safetensors is damaged (SHA-256 differs)" in line
    assert f"continuing from {good}" in line
    assert read_report(run_dir)["learner_updates"] == updates


def test_when_none_is_left_the_line_says_what_is_wrong_with_each(run_dir: Path) -> None:
    first, second, third = checkpoints(run_dir)
    shutil.rmtree(third)
    (first / "state.json").unlink()
    (second / "manifest.json").write_text("{")
    before = newest_checkpoint_name(run_dir)
    code, lines = resume(run_dir)
    assert code == 2
    (line,) = lines
    assert line.startswith(f"learner: {run_dir / 'checkpoints'}: none of 2 checkpoints can be used: ")
    assert f"{first}: state.json is missing" in line
    assert f"{second}: manifest.json is damaged" in line
    assert newest_checkpoint_name(run_dir) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--network.core", "lstm"), "made by another network or environment (network.core none, here lstm)"),
        (("--name", "other"), "made by another run (name catch, here other)"),
    ],
)
def test_a_foreign_one_is_refused_in_words(run_dir: Path, words: tuple[str, str], named: str) -> None:
    for path in checkpoints(run_dir)[:-1]:
        shutil.rmtree(path)
    (foreign,) = checkpoints(run_dir)
    assert resume(run_dir, *words) == (2, [f"learner: {foreign}: {named}"])
