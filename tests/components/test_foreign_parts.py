"""Parts of other packages: they train, and broken ones harm only the runs that name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.envs.test_installed_suites import EXTENSION, python

pytestmark = pytest.mark.processes

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
    assert python(TRAIN, EXTENSION).split() == ["30"]


BROKEN = {
    "absent": ("import there_is_no_such_module", "ModuleNotFoundError: No module named 'there_is_no_such_module'"),
    "shapeless": ("PART = object()", "TypeError: it is not a Part"),
    "foreign": (
        "from herd.components.registry import Part, PartSettings\nPART = Part('foreign', PartSettings)",
        "TypeError: its settings are not a LossSettings",
    ),
    "renamed": (
        "from corridor_suite.parts import CLONING as PART",
        "TypeError: its settings need the field kind: Literal['renamed'] = 'renamed'",
    ),
}
"""Source of a loss that cannot be loaded, and the reason in the error."""


def test_broken_parts_fail_only_if_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    information = tmp_path / "broken-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}_loss:PART\n" for name in BROKEN) + "dice = renamed_loss:PART\n"
    (information / "entry_points.txt").write_text(f"[herd.losses]\n{points}")
    for name, (source, _) in BROKEN.items():
        (tmp_path / f"{name}_loss.py").write_text(source)
    told = python(
        f"""
import json
from pathlib import Path
from herd.components.losses import LOSSES
from herd.config.loading import SettingsError, load_settings

def load(kind):
    file = Path("broken.yaml")
    file.write_text(f"loss: {{{{kind: {{kind}}, a_setting_of_its: 3}}}}")
    try:
        return load_settings([file], [], {{}}).loss.kind
    except SettingsError as error:
        return str(error)

chosen = {{kind: load(kind) for kind in {[*BROKEN]}}}
print(json.dumps([load_settings([], [], {{}}).loss.kind, chosen, LOSSES.broken["dice of renamed_loss:PART"]]))
""",
        tmp_path,
        EXTENSION,
    )
    unchosen, chosen, thief = json.loads(told)
    assert unchosen == "impala"
    for name, (_, reason) in BROKEN.items():
        assert chosen[name] == f"loss.kind: loss {name} of {name}_loss:PART cannot be loaded: {reason} (broken.yaml)"
    assert thief == "loss dice of renamed_loss:PART is ignored: another one has this name"
