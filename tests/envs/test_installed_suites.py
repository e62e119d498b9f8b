"""Suites of other packages are found by entry points. Each test uses a fresh process, because installed packages are looked up once."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from herd.components.suites import make_environments, missing_packages, suite_named
from herd.components.suites.api import UnknownTaskError
from herd.components.suites.atari import AtariSettings
from tests.patience import patient

EXTENSION = Path(__file__).parents[1] / "extension_package"


def python(code: str, *paths: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def register(folder: Path, name: str, target: str) -> Path:
    information = folder / f"{name}_suite-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-suite\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[herd.suites]\n{name} = {target}\n")
    return folder


BROKEN = {
    "absent": ("import there_is_no_such_module", "ModuleNotFoundError: No module named 'there_is_no_such_module'"),
    "failing": ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
    "shapeless": ("SUITE = object()", "TypeError: it is not a Part"),
    "renamed": ("from corridor_suite import SUITE", "TypeError: its settings need the field suite: Literal['renamed'] = 'renamed'"),
    "empty": ("x = 1", "AttributeError: module 'empty_suite' has no attribute 'SUITE'"),
}
"""Source code of a suite that cannot be loaded, and the reason in the error."""


@pytest.mark.processes
def test_a_suite_of_another_package_can_be_played_and_scored() -> None:
    told = python(
        """
import numpy as np
from herd.config.loading import load_settings
from herd.components.suites import environment_spec, make_environments, suite_of
env = load_settings([], ["--env.suite", "corridor", "--env.length", "4"], {}).env
environments = make_environments(env, num_environments=2, first_slot=0, seed=1, num_threads=1)
environments.reset()
finished = [environments.step(np.array([1, 0], np.int32)).finished for _ in range(3)][-1]
print(environment_spec(env).vector_size, [game.episode_return for game in finished], suite_of(env).reference_scores()["corridor"].human)
""",
        EXTENSION,
    )
    assert told.split() == ["4", "[1.0]", "1.0"]


@pytest.mark.processes
def test_a_broken_suite_fails_only_if_chosen_and_doctor_names_it(tmp_path: Path) -> None:
    for name, (source, _) in BROKEN.items():
        register(tmp_path, name, f"{name}_suite:SUITE")
        (tmp_path / f"{name}_suite.py").write_text(source)
    register(tmp_path / "thief", "catch", "thief:SUITE")
    file = tmp_path / "failing.yaml"
    file.write_text("env:\n  suite: failing\n  a_setting_of_its: 3\n")
    told = json.loads(
        python(
            f"""
import json
from pathlib import Path
from herd.cli.doctor import check_suites
from herd.config.loading import SettingsError, load_settings

def load(files, *words):
    try:
        return load_settings(files, words, {{}}).env.suite
    except SettingsError as error:
        return str(error)

chosen = {{name: load([], "--env.suite", name, "--network.torso", "mlp") for name in {["atari", "catch", "corridor", *BROKEN]}}}
checks = {{check.name: [check.ok, check.found, check.advice, check.required] for check in check_suites()}}
print(json.dumps([load([]), chosen, load([Path({str(file)!r})]), checks]))
""",
            tmp_path,
            tmp_path / "thief",
            EXTENSION,
        )
    )
    unchosen, chosen, from_file, checks = told
    assert unchosen == "atari"
    for name in ("atari", "catch", "corridor"):
        assert chosen[name] == name
        assert checks[f"suite {name}"][0] is True
    for name, (_, reason) in BROKEN.items():
        line = f"suite {name} of {name}_suite:SUITE cannot be loaded: {reason}"
        assert chosen[name] == f"env.suite: {line} (command line)"
        assert checks[f"suite {name}"] == [False, "broken", line, False]
    assert from_file == chosen["failing"].replace("command line", str(file))
    assert checks["suite atari"][3] is True
    assert checks["suite catch of thief:SUITE"][2] == "suite catch of thief:SUITE is ignored: another one has this name"


def test_a_missing_package_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    atari = suite_named("atari")
    assert missing_packages(atari) is None
    lacking = dataclasses.replace(atari, packages=("ale_py", "no_such_package"))
    assert missing_packages(lacking) == "env.suite atari needs no_such_package: pip install 'herd-rl[actor]'"
    assert (
        missing_packages(dataclasses.replace(lacking, install="")) == "env.suite atari needs no_such_package: pip install no_such_package"
    )
    monkeypatch.setattr("herd.components.suites.suite_named", lambda _: lacking)
    with pytest.raises(UnknownTaskError, match="needs no_such_package"):
        make_environments(AtariSettings(), num_environments=1, first_slot=0, seed=1, num_threads=1)


@pytest.mark.processes
def test_core_and_torso_of_another_package_are_trained() -> None:
    told = python(
        """
import torch
from tests.equality.recorder import Batches, Trainer, environment_spec, load_settings
words = "--env.suite corridor --network.torso corridor_places --network.core corridor_gru --network.core.size 8 --actor.environments 4"
words += " --learner.batch_size 4 --algorithm.burn_in 4 --network.last_action_and_reward"
settings = load_settings([], words.split(), {})
trainer = Trainer(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32)
batches = Batches(settings)
before = trainer.weights()["core.initial"].clone()
for number in range(6):
    batch = batches.next().batch
    trainer.begin(batch, 0)
    trainer.finish(trainer.launch(batch), settings.optimizer.rates(env_frames=0, learner_updates=number))
    batches.actor.policy.load(trainer.weights())
print(batch.initial_core_state.shape[1], bool((trainer.weights()["core.initial"] != before).all()))
""",
        EXTENSION,
        EXTENSION.parents[1],
    )
    assert told.split() == ["8", "True"]
