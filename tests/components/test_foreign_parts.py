"""Parts of other packages are found by entry points; broken ones harm only the runs that name them.

Each test uses a fresh process, because installed packages are looked up once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from herd.components.suites import missing_packages, suite_named
from tests.patience import patient
from tests.system.whole_runs import ROOT

pytestmark = pytest.mark.processes
EXTENSION = ROOT / "tests" / "extension_package"


def python(code: str, *paths: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*paths, EXTENSION, ROOT)))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def register(folder: Path, group: str, name: str, target: str) -> None:
    """Leave the metadata of an installed package with one part."""
    information = folder / f"{name}_{group}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-{group}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[herd.{group}]\n{name} = {target}\n")


TRAIN = """
from herd.config.loading import load_settings
from herd.components.trackers.api import Run
from herd.components.trackers.publishing import make_trackers
from pathlib import Path
import sys
words = "--env.suite catch --network.torso mlp --algorithm.unroll_length 4 --learner.batch_size 5 --actor.environments 2".split()
words += "--loss.kind cloning --loss.value_cost 1 --optimizer.kind momentum --optimizer.learning_rate 0.01".split()
file = Path("run.yaml")
file.write_text("logging: {points: {file: mine.txt}}")
settings = load_settings([file], words, {})
assert "torch" not in sys.modules
from tests.training.small_runs import batch_of, trainer_of
trainer = trainer_of(settings)
trackers = make_trackers(settings.logging, Run(Path(), "run", {}))
losses = []
for update in range(30):
    done = trainer(batch_of(settings), settings.optimizer.rates(env_frames=0, learner_updates=update))
    losses.append(done.losses["loss_imitation"].value)
    trackers.add({"env_frames": update, "loss_imitation": losses[-1]})
trackers.close()
assert losses[-1] < losses[0] - 0.05, losses
again = trainer_of(settings)
for name, part in again.parts.items():
    part.load(trainer.parts[name].tensors())
assert any(key.endswith("/momentum_buffer") for key in again.parts["optimizer"].tensors())
print(len(Path("mine.txt").read_text().splitlines()))
"""


def test_a_loss_an_optimizer_and_a_tracker_of_another_package_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert python(TRAIN).split() == ["30"]


def test_suite_core_and_torso_of_another_package_are_trained() -> None:
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
from herd.components.suites import suite_of
print(batch.initial_core_state.shape[1], bool((trainer.weights()["core.initial"] != before).all()))
print(suite_of(settings.env).reference_scores()["corridor"].human)
"""
    )
    assert told.split() == ["8", "True", "1.0"]


BROKEN = {
    "absent": ("import there_is_no_such_module", "ModuleNotFoundError: No module named 'there_is_no_such_module'"),
    "failing": ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
    "shapeless": ("SUITE = object()", "TypeError: it is not a Part"),
    "renamed": ("from corridor_suite import SUITE", "TypeError: its settings need the field suite: Literal['renamed'] = 'renamed'"),
    "empty": ("x = 1", "AttributeError: module 'empty_suite' has no attribute 'SUITE'"),
}
"""Source code of a suite that cannot be loaded, and the reason in the error."""


def test_a_broken_suite_fails_only_if_chosen_and_doctor_names_it(tmp_path: Path) -> None:
    for name, (source, _) in BROKEN.items():
        register(tmp_path, "suites", name, f"{name}_suite:SUITE")
        (tmp_path / f"{name}_suite.py").write_text(source)
    register(tmp_path / "thief", "suites", "catch", "thief:SUITE")
    register(tmp_path, "losses", "foreign", "foreign_loss:PART")
    (tmp_path / "foreign_loss.py").write_text(
        "from herd.components.registry import Part, PartSettings\nPART = Part('foreign', PartSettings)\n"
    )
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
print(json.dumps([load([]), chosen, load([Path({str(file)!r})]), load([], "--loss.kind", "foreign"), checks]))
""",
            tmp_path,
            tmp_path / "thief",
        )
    )
    unchosen, chosen, from_file, loss, checks = told
    assert unchosen == "atari"
    for name in ("atari", "catch", "corridor"):
        assert chosen[name] == name
        assert checks[f"suite {name}"][0] is True
    for name, (_, reason) in BROKEN.items():
        line = f"suite {name} of {name}_suite:SUITE cannot be loaded: {reason}"
        assert chosen[name] == f"env.suite: {line} (command line)"
        assert checks[f"suite {name}"] == [False, "broken", line, False]
    assert from_file == chosen["failing"].replace("command line", str(file))
    reason = "TypeError: its settings are not a LossSettings"
    assert loss == f"loss.kind: loss foreign of foreign_loss:PART cannot be loaded: {reason} (command line)"
    assert checks["suite atari"][3] is True
    assert checks["suite catch of thief:SUITE"][2] == "suite catch of thief:SUITE is ignored: another one has this name"


def test_missing_packages_of_a_suite_are_named_with_their_install_command() -> None:
    lacking = dataclasses.replace(suite_named("atari"), packages=("ale_py", "no_such_package"), install="")
    assert missing_packages(lacking) == "env.suite atari needs no_such_package: pip install no_such_package"
