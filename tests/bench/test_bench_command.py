from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from herd.bench import command
from herd.bench.measurement import Measurement
from herd.bench.stages import StageError
from herd.bench.table import print_table
from herd.cli.main import main

COSTS = {"environment": 300.0, "inference": 50.0, "learner": 100.0, "transport": 50.0}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "pong.yaml"
    path.write_text("env: {tasks: [pong]}\n")
    return str(path)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Stages with known costs; returns what was measured, in order."""
    asked = []

    def run_stage(stage: str, config: Path, *, seconds: float) -> Measurement:
        asked.append((stage, config.read_text()))
        return Measurement(10_000, seconds, COSTS[stage] / 100)

    def measure_system(config: Path, run_dir: Path, *, seconds: float, warmup_seconds: float) -> Measurement:
        asked.append(("system", run_dir.name))
        assert warmup_seconds > 0
        repeat = int(run_dir.name.removeprefix("run-"))
        return Measurement((3000, 2700, 3300)[repeat], 1.0, 1.9)

    monkeypatch.setattr(command, "run_stage", run_stage)
    monkeypatch.setattr(command, "measure_system", measure_system)
    monkeypatch.setattr(command, "usable_cpus", lambda: 2)
    return asked


def test_the_report_gives_the_share_of_the_ceiling(
    config: str, measured: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", config, "--json", "--seconds", "2", "--torso", "deep", "--actor.environments", "16"]) == 0
    report = json.loads(capsys.readouterr().out)
    # 2 cores / 500 core-microseconds = 4,000 agent steps a second.
    assert report["ceiling"] == pytest.approx({"agent_steps_per_second": 4000.0, "frames_per_second": 16_000.0})
    assert report["share_of_ceiling"] == pytest.approx(0.75)
    assert set(report["stages"]) == {*COSTS, "system"}
    for stage, cost in COSTS.items():
        assert report["stages"][stage]["core_microseconds_per_agent_step"] == pytest.approx(cost)
        assert report["stages"][stage]["repeats"] == 3
    assert report["stages"]["system"]["frames_per_second"] == pytest.approx(12_000.0)
    assert report["hardware"]["usable_cores"] >= 1
    assert report["settings"]["network"]["torso"] == "deep"


def test_every_round_runs_all_stages_with_the_same_settings(config: str, measured: list[tuple[str, str]]) -> None:
    assert main(["bench", config, "--json", "--repeats", "2", "--torso", "deep"]) == 0
    stages = [stage for stage, _ in measured]
    assert stages == [*COSTS, "system"] * 2
    texts = {text for stage, text in measured if stage != "system"}
    assert len(texts) == 1
    assert "torso: deep" in texts.pop()
    # Each run has its own directory: one must not resume or read another.
    assert len({text for stage, text in measured if stage == "system"}) == 2


def test_a_failed_stage_gives_one_line_and_exit_code_1(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_stage(stage: str, config: Path, *, seconds: float) -> Measurement:
        raise StageError(f"{stage}: broken")

    monkeypatch.setattr(command, "run_stage", run_stage)
    assert main(["bench", config]) == 1
    assert capsys.readouterr().err == "herd: environment: broken\n"


def test_the_table_shows_every_stage(config: str, measured: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", config, "--json"])
    report = json.loads(capsys.readouterr().out)
    out = io.StringIO()
    print_table(report, Console(file=out, width=80))
    for name in (*COSTS, "system"):
        assert name in out.getvalue()
    assert "-10% +10%" in out.getvalue()
    assert "…" not in out.getvalue()
    assert "reaches 75% of it" in out.getvalue()
    assert "16,000 env frames/s" in out.getvalue()


@pytest.mark.processes
def test_importing_the_command_loads_neither_torch_nor_sockets() -> None:
    script = "import sys, herd.bench.command; print(sorted({'torch', 'zmq', 'ale_py', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
