"""Exported policies give the results of `herd.load_policy`, computed with torch or onnxruntime alone."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import herd
from herd.cli import preflight
from herd.cli.main import main
from herd.evaluation.trained_run import load_trained_run
from herd.export import formats
from herd.export.network import ExportedPolicy
from herd.export.parity import Parity, compare
from tests.evaluation.test_policy import SCENE

RunMaker = Callable[..., Path]
ATARI = {"tasks": ["breakout"], "frame_height": 42, "frame_width": 42}
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": {"env": ATARI, "network": {"core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True}},
    "deep": {
        "env": ATARI | {"frame_stack": 1},
        "network": {"torso": "deep", "layer_norm": True, "input_centering": "filters"},
        "loss": {"kind": "dice", "ablation": "baseline"},
    },
    "centred": {"env": ATARI, "network": {"input_centering": "mean"}},
    "vector": {"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}, "value_scaling": {"kind": "popart"}},
}


def compute(path: Path, kind: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Compute the outputs as docs/export.md does."""
    if kind == "onnx":
        outputs: list[np.ndarray] = onnxruntime.InferenceSession(path).run(None, inputs)
        return outputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        module = torch.export.load(path).module()
    return [output.detach().numpy() for output in module(*map(torch.from_numpy, inputs.values()))]


@pytest.mark.parametrize("kind", ["torch", "onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_policy_gives_the_same_results(
    make_run: RunMaker, capsys: pytest.CaptureFixture[str], name: str, kind: formats.Format
) -> None:
    run = make_run(NETWORKS[name])
    assert main(["export", str(run), "--format", kind, "--steps", "15"]) == 0
    said, path, described = capsys.readouterr().out.splitlines()
    assert said.startswith("largest difference from the network: logits ")
    assert "(60 observations, " in said
    description = json.loads(Path(described).read_text())
    assert description["parity"]["rows"] == 60
    assert description["parity"]["other_actions"] == 0
    assert max(description["parity"]["differences"].values()) < 1e-4
    assert min(description["parity"]["largest"].values()) > 1e-3
    assert not list(run.glob(".*unchecked*"))

    # The number of environments differs from that at export, and games start in the middle.
    policy = herd.load_policy(run, seed=2)
    environments = policy.make_environments(3, seed=8)
    row: Any = environments.reset()
    states, core_reset = np.zeros((3, 32), np.float32), np.ones(3, np.bool_)
    last_actions, last_rewards = np.full(3, 2), np.zeros(3, np.float32)
    for number in range(12):
        actions = policy.act(row)
        observation = row if number == 0 else row.observation
        feeds = {
            "frames": np.ascontiguousarray(observation.stack),
            "vectors": observation.vector,
            "last_actions": last_actions,
            "last_rewards": last_rewards,
            "core_reset": core_reset,
            "core_state": states,
        }
        found = compute(Path(path), kind, {port["name"]: feeds[port["name"]] for port in description["inputs"]})
        assert policy.last_step is not None
        np.testing.assert_allclose(found[0], policy.last_step.behaviour_parameters, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[1], policy.last_step.values, rtol=1e-4, atol=1e-4)
        states = found[2] if len(found) > 2 else states
        row = environments.step(actions)
        core_reset = row.terminated | row.observation.game_reset
        last_actions = actions.astype(np.int64)
        last_rewards = np.where(core_reset, 0, row.rewards).astype(np.float32)
    environments.close()


def test_a_policy_that_differs_is_not_written(
    make_run: RunMaker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(NETWORKS["vector"])
    real = formats.write

    def spoiled(policy: ExportedPolicy, path: Path, kind: formats.Format) -> None:
        with torch.no_grad():
            policy.agent.value_head.bias.add_(0.01)
        real(policy, path, kind)

    monkeypatch.setattr(formats, "write", spoiled)
    assert main(["export", str(run), "--steps", "5"]) == 1
    captured = capsys.readouterr()
    assert "values 0.01" in captured.out
    assert captured.err == "herd: the exported policy differs by more than --tolerance 0.0001: nothing was written\n"
    assert {path.name for path in run.iterdir()} == {"config.yaml", "checkpoints"}


def test_parity_detects_a_lost_state_and_non_finite_numbers(make_run: RunMaker) -> None:
    run = load_trained_run(make_run(NETWORKS["lstm"]))
    policy = ExportedPolicy(run.agent, run.spec)

    def of(change: Callable[[list[np.ndarray]], list[np.ndarray]]) -> Parity:
        def computed(inputs: Any) -> list[np.ndarray]:
            with torch.inference_mode():
                return change([output.numpy() for output in policy(*map(torch.from_numpy, inputs))])

        return compare(run, policy, computed, steps=8)

    assert of(lambda outputs: outputs).within(1e-5)
    forgetful = of(lambda outputs: [*outputs[:2], np.zeros_like(outputs[2])])
    assert not forgetful.within(1e-3)
    assert forgetful.differences["logits"] > 1e-3
    assert not of(lambda outputs: [outputs[0] * np.nan, *outputs[1:]]).within(1.0)


def test_missing_extras_and_unwritable_files_are_named(
    make_run: RunMaker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(NETWORKS["vector"])
    assert main(["export", str(run), "--steps", "2", "--output", "/proc/here/policy.pt2"]) == 2
    assert capsys.readouterr().err.splitlines()[0].startswith("herd: cannot write /proc/here")
    real = find_spec
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    assert main(["export", str(run), "--format", "onnx"]) == 2
    assert capsys.readouterr().err == "herd: needs onnxscript: pip install 'herd-rl[export]'\n"


LSTM = {"torso": "mlp", "core": {"kind": "lstm", "size": 8}, "last_action_and_reward": True}


@pytest.mark.parametrize("kind", ["torch", "onnx"])
@pytest.mark.parametrize(
    ("task", "name", "num_parameters", "optional_inputs"),
    [
        ("herd.components.suites.gymnasium.examples:Dials", "logits", 9, ["vectors", "action_masks"]),
        ("Pendulum-v1", "means_and_log_deviations", 2, ["vectors"]),
        ("tests.acting.mixed:Mixed", "parameters", 3 + 4, ["vectors"]),
        ("scenes:Scene", "logits", 3, ["frames", "vectors", "instructions"]),
    ],
)
def test_policies_over_every_kind_of_action_and_observation_can_be_exported(
    make_run: RunMaker,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    name: str,
    num_parameters: int,
    optional_inputs: list[str],
    kind: formats.Format,
) -> None:
    monkeypatch.setitem(sys.modules, "scenes", sys.modules["tests.evaluation.test_policy"])
    if task == "scenes:Scene":
        run = make_run(SCENE | {"env": SCENE["env"] | {"tasks": [task]}})
    else:
        run = make_run({"env": {"suite": "gymnasium", "tasks": [task]}, "network": LSTM})
    output = run / "out" / "mine.bin"
    assert main(["export", str(run), "--format", kind, "--steps", "12", "--output", str(output)]) == 0
    description = json.loads((run / "out" / "mine.bin.json").read_text())
    assert (description["outputs"][0]["name"], description["outputs"][0]["shape"]) == (name, ["environments", num_parameters])
    inputs = {port["name"]: port["shape"] for port in description["inputs"]}
    assert set(inputs) == {*optional_inputs, "last_actions", "last_rewards", "core_reset", "core_state"}
    assert inputs.get("action_masks", [0, num_parameters])[1] == num_parameters
    parity = description["parity"]
    assert parity["other_actions"] == 0
    assert max(parity["differences"].values()) < 1e-4
    assert 1e-3 < min(parity["largest"].values()) <= max(parity["largest"].values()) < 1e3
