"""The paths of the files of a run with one agent or several."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.config.run_files import agent_directories, agent_number, config_file, whole_run
from herd.config.settings import RunSettings


@pytest.fixture
def run(tmp_path: Path) -> Path:
    settings = RunSettings(run_dir=tmp_path / "run", agents=11)
    for directory in settings.agent_directories:
        directory.mkdir(parents=True)
    (settings.directory / "config.yaml").write_text("agents: 11\n")
    return settings.directory


def test_an_agents_directory_leads_to_its_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = run / "agents" / "10"
    assert whole_run(agent) == run.resolve()
    assert config_file(agent).read_text() == "agents: 11\n"
    assert agent_number(agent) == 10
    monkeypatch.chdir(agent)
    assert config_file(Path()).is_file()
    assert agent_number(Path()) == 10


def test_a_run_has_its_agents_in_order_of_their_numbers(run: Path) -> None:
    (run / "agents" / "notes").mkdir()
    assert agent_directories(run) == [run / "agents" / str(number) for number in range(11)]
    assert agent_directories(run / "agents" / "3") == [run / "agents" / "3"]
    assert (whole_run(run), agent_number(run)) == (run, 0)


def test_the_only_agent_lives_in_the_runs_own_directory(tmp_path: Path) -> None:
    assert RunSettings(run_dir=tmp_path).agent_directories == [tmp_path] == agent_directories(tmp_path)


def test_a_run_that_happens_to_lie_in_a_folder_called_agents(tmp_path: Path) -> None:
    run = tmp_path / "agents" / "0"
    run.mkdir(parents=True)
    (tmp_path / "config.yaml").touch()
    (run / "config.yaml").touch()
    assert (whole_run(run), agent_number(run), config_file(run)) == (run, 0, run / "config.yaml")
