from __future__ import annotations

import os
from pathlib import Path

import pytest

from herd.components.suites.dmlab.cache import LevelCache
from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.files import append_line
from herd.launch.run_directory import RunDirectoryError, claim_run_directory, hold_run_directory, leave_token
from tests.failing_disks import no_space_beyond


def test_new_run_directories_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = RunSettings(name="pong")
    taken = [claim_run_directory(settings).run_dir for _ in range(3)]
    assert taken == [Path("runs/pong"), Path("runs/pong-2"), Path("runs/pong-3")]
    assert (tmp_path / "runs" / "pong-3").is_dir()


def test_a_given_directory_must_be_empty_unless_resumed(tmp_path: Path) -> None:
    settings = RunSettings(run_dir=tmp_path / "a")
    assert claim_run_directory(settings).run_dir == tmp_path / "a"
    assert claim_run_directory(settings).run_dir == tmp_path / "a"
    (tmp_path / "a" / "metrics.jsonl").write_text("")
    with pytest.raises(RunDirectoryError, match="not empty; add --resume"):
        claim_run_directory(settings)
    assert claim_run_directory(settings.model_copy(update={"resume": True})).run_dir == tmp_path / "a"


def test_resuming_a_missing_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no such run to resume"):
        claim_run_directory(RunSettings(run_dir=tmp_path / "nothing", resume=True))


def test_a_run_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be created"):
        claim_run_directory(RunSettings(run_dir=tmp_path / "file" / "run"))


def test_holding_writes_the_settings_and_removes_old_process_files(tmp_path: Path) -> None:
    settings = claim_run_directory(RunSettings(run_dir=tmp_path / "run", seed=7))
    (tmp_path / "run" / "processes").mkdir()
    (tmp_path / "run" / "processes" / "actor-9.json").write_text("{}")
    with hold_run_directory(settings.model_copy(update={"resume": True})) as held:
        directory = held.path
        assert load_settings([directory / "config.yaml"], [], {}) == settings
        assert list((directory / "processes").iterdir()) == []
        assert (directory / "logs").is_dir()


def test_a_run_directory_is_held_by_one_supervisor(tmp_path: Path) -> None:
    settings = claim_run_directory(RunSettings(run_dir=tmp_path / "run"))
    with hold_run_directory(settings), pytest.raises(RunDirectoryError, match="in use by another herd train"), hold_run_directory(settings):
        pass
    with hold_run_directory(settings):
        pass


def test_the_files_of_a_run_are_as_open_as_the_umask_allows(tmp_path: Path) -> None:
    """A colleague in the same group may continue a run in a shared folder."""
    before = os.umask(0o002)
    try:
        settings = claim_run_directory(RunSettings(run_dir=tmp_path / "run"))
        with hold_run_directory(settings) as held:
            leave_token(held.path, {})
            append_line(held.path / "metrics.jsonl", "{}")
        (tmp_path / "map").write_text("")
        LevelCache(tmp_path / "run" / "maps").write("key", str(tmp_path / "map"))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").rglob("*")}
    assert modes.pop("token") == 0o600  # a secret
    assert len(modes) >= 8
    assert {mode & 0o060 for mode in modes.values()} == {0o060}, modes


def test_a_full_disk_refuses_the_start_and_keeps_config_yaml(tmp_path: Path) -> None:
    """An empty config.yaml would make the run unusable, because every later command reads it."""
    settings = claim_run_directory(RunSettings(run_dir=tmp_path / "run"))
    with hold_run_directory(settings) as held:
        directory = held.path
        before = (directory / "config.yaml").read_text()
    (directory / "processes" / "actor-9.json").write_text("{}")
    again = settings.model_copy(update={"seed": 8})
    with no_space_beyond(100), pytest.raises(RunDirectoryError, match="cannot be written: File too large"), hold_run_directory(again):
        pass
    assert (directory / "config.yaml").read_text() == before
    assert sorted(path.name for path in directory.iterdir()) == [".lock", "config.yaml", "logs", "processes", "starts.jsonl"]
    assert (directory / "processes" / "actor-9.json").exists()


def test_the_token_is_new_per_session_and_readable_by_its_user_only(tmp_path: Path) -> None:
    first = leave_token(tmp_path, {})
    assert len(first) == 64
    assert (tmp_path / "token").read_text().strip() == first
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert leave_token(tmp_path, {}) != first
    assert leave_token(tmp_path, {RUN_TOKEN_VARIABLE: "given"}) == "given"
    assert (tmp_path / "token").read_text() == "given\n"


def test_the_token_is_not_written_through_a_symlink(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "token").symlink_to(victim)
    leave_token(tmp_path / "run", {})
    assert victim.read_text() == "precious"
    assert not (tmp_path / "run" / "token").is_symlink()


def test_a_token_that_cannot_be_written_is_still_used(tmp_path: Path) -> None:
    assert len(leave_token(tmp_path / "gone", {})) == 64
