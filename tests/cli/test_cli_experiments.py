"""The shipped experiments can be listed and loaded by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from herd.cli.main import main
from herd.components.suites.atari import AtariSettings
from herd.config.experiments import suite_presets
from herd.config.loading import dump_settings, load_settings
from herd.evaluation.protocols import PROTOCOLS

SHIPPED = Path(__file__).parents[2] / "herd" / "experiments"


def test_every_experiment_is_listed_with_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments"]) == 0
    lines, heading, presets = (part.splitlines() for part in capsys.readouterr().out.split("\n\n"))
    assert heading[0].startswith("Presets")
    assert [line.split()[0] for line in presets] == ["atari-dopamine", "atari-impala", "atari-machado", "atari-saber"]
    assert [line.split()[0] for line in lines] == sorted(file.stem for file in SHIPPED.glob("*.yaml"))
    assert all(line.endswith(".") and 40 < len(line) < 140 for line in lines), lines  # each is a whole sentence
    assert dict(line.split(maxsplit=1) for line in lines)["pong"].startswith("Pong on two CPU cores")


def test_a_shown_experiment_loads_with_equal_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["experiments", "show", "pong"]) == 0
    Path("mine.yaml").write_text(capsys.readouterr().out)
    assert load_settings([Path("mine.yaml")], [], {}) == load_settings([Path("pong")], [], {})


def test_a_preset_overrides_the_suite_settings_of_an_experiment() -> None:
    plain, sticky = load_settings([Path("breakout")], [], {}), load_settings([Path("breakout"), Path("atari-machado")], [], {})
    assert isinstance(sticky.env, AtariSettings)
    assert (sticky.env.sticky_action_probability, sticky.env.action_set, sticky.env.life_loss_ends_episode) == (0.25, "full", False)
    assert sticky.model_copy(update={"env": plain.env}) == plain
    assert load_settings([Path("breakout"), Path("atari-machado"), Path("atari-impala")], ["--env.action_set", "minimal"], {}) == plain


def test_a_protocol_sets_how_a_run_trains_unless_a_source_says_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--evaluation.protocol", "dopamine"]
    by_protocol = load_settings([Path("atari-fast")], words, {})
    assert by_protocol.env == load_settings([Path("atari-fast"), Path("atari-dopamine")], [], {}).env
    assert by_protocol.evaluation.protocol == "dopamine"
    file = tmp_path / "mine.yaml"
    file.write_text("evaluation: {protocol: dopamine}\nenv: {suite: atari, noop_max: 30}\n")
    env = load_settings([file], [], {}).env
    assert isinstance(env, AtariSettings)
    assert (env.noop_max, env.sticky_action_probability, env.life_loss_ends_episode) == (30, 0.25, False)
    assert load_settings([Path("catch")], words, {}).env == load_settings([Path("catch")], [], {}).env
    resolved = tmp_path / "config.yaml"  # of a run that was trained without the protocol
    resolved.write_text(dump_settings(load_settings([Path("atari-fast")], [], {})))
    assert load_settings([resolved], words, {}).env == load_settings([Path("atari-fast")], [], {}).env
    assert main(["train", "atari-deep", *words]) == 2
    assert "the run has 0.0" in (said := capsys.readouterr().err)
    assert "atari-dopamine, given after the run file" in said


@pytest.mark.parametrize("preset", ["dopamine", "machado", "saber"])
def test_a_preset_trains_as_its_protocol_asks(preset: str) -> None:
    env = load_settings([Path("atari-shallow"), Path(f"atari-{preset}")], [], {}).env
    protocol = PROTOCOLS[preset]
    assert protocol.objection(env) is None
    assert protocol.differences(env) == ()
    assert {name: getattr(env, name) for name in protocol.played} == dict(protocol.played)


def test_a_preset_leaves_nothing_of_another() -> None:
    keys = [set(yaml.safe_load(file.read_text())["env"]) for file in suite_presets().values()]
    closed = {"action_repeat", "sticky_action_probability", "noop_max", "fire_on_reset", "life_loss_ends_episode"}
    assert set.intersection(*keys) >= {*closed, "max_episode_frames", "max_frames_without_reward"}


def test_a_file_takes_precedence_over_a_shipped_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pong").mkdir()
    assert load_settings([Path("pong")], [], {}).name == "pong"
    Path("catch").write_text("name: mine\n")
    assert load_settings([Path("catch")], [], {}).name == "mine"
