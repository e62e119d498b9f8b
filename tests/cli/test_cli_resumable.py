"""Whether a run can be resumed is checked before any of its files is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from herd.cli.options import CommandError
from herd.cli.run_paths import check_resumable, existing_run, finished
from herd.cli.train import read_settings, run
from herd.components.suites import environment_spec
from herd.config.loading import dump_settings, load_settings
from herd.config.run import RunSettings
from herd.config.run_contract import Origin
from herd.run.checkpoints import write_checkpoint
from herd.run.settings import keep_settings


def settings_of(run_dir: Path, *words: str) -> RunSettings:
    return load_settings([], ["--run_dir", str(run_dir), *words], {})


def leave_checkpoint(settings: RunSettings, updates: int, env_frames: int = 0) -> Path:
    state = {**Origin.of(settings, environment_spec(settings.env)).as_json(), "statistics": {"env_frames": env_frames}}
    return write_checkpoint(settings.directory / "checkpoints", updates, {"state.json": json.dumps(state).encode()}, keep=100)


def test_runs_without_or_with_own_checkpoints_are_resumable(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert check_resumable(settings) == f"{tmp_path} contains no checkpoint: training starts at 0 updates"
    leave_checkpoint(settings, 7)
    newest = leave_checkpoint(settings, 1234)
    assert check_resumable(settings) == f"resumes from {newest} (1,234 updates)"
    with pytest.raises(CommandError, match="nowhere: no such run to resume"):
        check_resumable(settings_of(tmp_path / "nowhere"))


def test_a_run_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/mine-2").mkdir(parents=True)
    Path("runs/mine-2/config.yaml").touch()
    assert existing_run(Path("mine-2")) == Path("runs/mine-2")


def test_the_directory_of_a_run_continues_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keep_settings(tmp_path, settings_of(tmp_path, "--seed", "7"))
    for words in ([str(tmp_path)], ["--resume", str(tmp_path)], ["--resume", "--run_dir", str(tmp_path)]):
        settings = read_settings([*words, "--optimizer.learning_rate", "1e-3"], {})
        assert (settings.resume, settings.directory, settings.seed, settings.optimizer.learning_rate) == (True, tmp_path, 7, 1e-3)


@pytest.mark.parametrize("words", [("--network.core", "lstm"), ("--name", "other")])
def test_an_own_checkpoint_below_a_foreign_one_is_enough(tmp_path: Path, words: tuple[str, str]) -> None:
    settings = settings_of(tmp_path)
    leave_checkpoint(settings, 7)
    leave_checkpoint(settings_of(tmp_path, *words), 9)
    check_resumable(settings)


def test_with_only_foreign_checkpoints_the_differences_are_named(tmp_path: Path) -> None:
    leave_checkpoint(settings_of(tmp_path, "--name", "other"), 7)
    newest = leave_checkpoint(settings_of(tmp_path, "--network.core", "lstm"), 9)
    with pytest.raises(CommandError) as refused:
        check_resumable(settings_of(tmp_path))
    assert str(refused.value) == (
        f"{newest}: made by another network or environment (network.core lstm, here none); "
        f"resume with the settings of {tmp_path / 'config.yaml'}"
    )


def test_a_finished_run_is_not_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--run_dir", str(tmp_path), "--stop.env_frames", "400000"]
    settings = load_settings([], words, {})
    assert finished(settings) is None
    leave_checkpoint(settings, 7, 399_999)
    assert finished(settings) is None
    leave_checkpoint(settings, 8, 400_500)
    assert finished(settings_of(tmp_path)) is None  # without a limit
    assert finished(load_settings([], [*words, "--agents", "2"], {})) is None  # these have folders of their own
    line = "finished at 400,500 of 400,000 frames: raise --stop.env_frames to train it further"
    assert finished(settings) == f"{tmp_path}: {line}"
    (tmp_path / "config.yaml").write_text(dump_settings(settings))
    (tmp_path / "report.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    assert run(["--resume", "--run_dir", str(tmp_path)]) == 0
    assert line in capsys.readouterr().err.splitlines()[-1]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_an_unreadable_checkpoint_is_left_to_the_learner(tmp_path: Path, text: str) -> None:
    leave_checkpoint(settings_of(tmp_path, "--name", "other"), 7)
    (leave_checkpoint(settings_of(tmp_path), 9) / "state.json").write_text(text)
    check_resumable(settings_of(tmp_path))
