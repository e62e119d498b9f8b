"""The bound on the size of published weights holds for every network, and is tight."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from herd.config.network_size import LEAST_BYTES, OWN_TORSO_BYTES, max_weights_bytes
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.networks.agent import agent_of
from herd.run.tensors import encode_weights

ATARI: dict[str, Any] = {"tasks": ["pong"]}
LARGE = {"tasks": ["pong"], "frame_height": 120, "frame_width": 160}
BOARD = {"suite": "catch", "tasks": ["catch"]}
VECTOR = {"suite": "gymnasium", "tasks": ["CartPole-v1"]}
CONVOLUTIONS = [
    (env, {"torso": torso, "width_multiplier": wide, "core": core, "core_size": 300, "last_action_and_reward": side, "layer_norm": norm})
    for torso, wide, core, side, norm in itertools.product(
        ["shallow", "nature", "deep"], [1, 4], ["none", "lstm"], [False, True], [False, True]
    )
    for env in (ATARI, LARGE)
]
LAYERS = [
    (env, {"torso": "mlp", "core": core, "layer_norm": norm})
    for env, core, norm in itertools.product([BOARD, VECTOR], ["none", "lstm"], [False, True])
]
NETWORKS = CONVOLUTIONS + LAYERS


@pytest.mark.parametrize(("env", "network"), NETWORKS, ids=str)
@pytest.mark.parametrize("scaling", ["none", "popart"])
def test_the_size_bound_holds_and_is_tight_for_every_network(env: dict[str, Any], network: dict[str, Any], scaling: str) -> None:
    settings = RunSettings.model_validate({"name": "run", "env": env, "network": network, "value_scaling": {"kind": scaling}})
    spec = environment_spec(settings.env)
    with torch.device("meta"):
        tensors = agent_of(settings, spec).state_dict()
    # The published form: the bytes of the tensors, and a header with names, shapes and offsets.
    header = len(encode_weights({name: torch.empty(0) for name in tensors})) + 40 * len(tensors)
    actual = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) + header
    assert actual <= max_weights_bytes(settings, spec) <= 1.5 * actual + LEAST_BYTES


def test_the_size_bound_can_be_set_and_is_wide_for_custom_torsos() -> None:
    own = RunSettings.model_validate({"name": "run", "network": {"torso": "package:Torso"}})
    assert max_weights_bytes(own, environment_spec(own.env)) == OWN_TORSO_BYTES
    given = RunSettings.model_validate({"name": "run", "paramserver": {"max_version_bytes": 12345}})
    assert max_weights_bytes(given, environment_spec(given.env)) == 12345


@pytest.mark.parametrize("core", ["none", "lstm"])
@pytest.mark.parametrize("vector_size", [0, 900])
def test_the_size_bound_includes_instructions_and_vectors(core: str, vector_size: int) -> None:
    settings = RunSettings.model_validate({"name": "run", "env": ATARI, "network": {"torso": "deep", "core": core}})
    # No suite in this test has instructions.
    settings = settings.model_copy(update={"network": settings.network.model_copy(update={"language": True})})
    spec = replace(environment_spec(settings.env), instruction_length=16, vector_size=vector_size)
    with torch.device("meta"):
        tensors = agent_of(settings, spec).state_dict()
    actual = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert actual <= max_weights_bytes(settings, spec) <= 1.5 * actual + LEAST_BYTES
