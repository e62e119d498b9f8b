"""The paths of the files of a run with one agent or several."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.config.run import RunSettings
from herd.run.paths import agent_directories, agent_number, config_file, planned_agent_directories, whole_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    settings = RunSettings(run_dir=tmp_path / "run", agents=11)
    for directory in planned_agent_directories(settings):
        directory.mkdir(parents=True)
    (settings.directory / "config.yaml").write_text("agents: 11\n")
    return settings.directory


def test_the_run_of_an_agents_directory_is_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = run / "agents" / "10"
    assert whole_run(agent) == run.resolve()
    assert config_file(agent).read_text() == "agents: 11\n"
    assert agent_number(agent) == 10
    monkeypatch.chdir(agent)
    assert config_file(Path()).is_file()
    assert agent_number(Path()) == 10


def test_agent_directories_are_sorted_by_number(run: Path) -> None:
    (run / "agents" / "notes").mkdir()
    assert agent_directories(run) == [run / "agents" / str(number) for number in range(11)]
    assert agent_directories(run / "agents" / "3") == [run / "agents" / "3"]
    assert (whole_run(run), agent_number(run)) == (run, 0)


def test_a_single_agent_uses_the_run_directory(tmp_path: Path) -> None:
    assert planned_agent_directories(RunSettings(run_dir=tmp_path)) == [tmp_path] == agent_directories(tmp_path)


def test_a_run_in_a_folder_named_agents_is_not_taken_for_an_agent(tmp_path: Path) -> None:
    run = tmp_path / "agents" / "0"
    run.mkdir(parents=True)
    (tmp_path / "config.yaml").touch()
    (run / "config.yaml").touch()
    assert (whole_run(run), agent_number(run), config_file(run)) == (run, 0, run / "config.yaml")
