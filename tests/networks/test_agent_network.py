"""The whole agent: side inputs, heads, precision, and independence from how a batch is split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from herd.agent import Agent
from herd.components.cores.lstm import LSTMSettings
from herd.components.cores.lstm.lstm import LSTMCore
from herd.components.losses import Head
from herd.components.torsos.api import TorsoError
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.components.torsos.nature import NatureTorsoSettings
from herd.config.run import NetworkSettings
from herd.contract.spaces import EnvSpec, discrete
from herd.networks.layers import Dense, InstructionEncoder
from tests.oracles.networks_layers import Array, lstm_with_resets, read_instruction, relu

torch.set_num_threads(1)
T, B, A, L = 5, 3, 4, 6


def _spec(height: int = 24, width: int = 28, *, stack: int = 4, channels: int = 1, actions: int = A, words: int = L) -> EnvSpec:
    return EnvSpec(("task",), (height, width, channels), stack, discrete(actions), 4, words)


def _action_head(agent: Agent) -> Dense:
    """The head of policy logits or of advantages, whichever the network has."""
    (head,) = (head for head in (agent.policy_head, agent.advantage_head) if head is not None)
    return head


def _agent(head: Head = "policy_value", num_values: int = 1, **network: object) -> Agent:
    torch.manual_seed(13)
    agent = Agent(spec=_spec(), network=NetworkSettings.model_validate(network), head=head, num_values=num_values)
    for layer in (_action_head(agent), agent.value_head):
        nn.init.normal_(layer.weight)  # a policy head near zero would hide earlier errors
        nn.init.normal_(layer.bias)
    return agent


def _inputs(agent: Agent) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(17)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[0, 0] = reset[2, 1] = reset[4, 1] = True
    ids = torch.randint(1, 1001, (T, B, L), generator=generator)
    ids[:, :, 4:] = 0
    state = agent.core.initial_state(B)
    return {
        "frames": torch.randint(0, 256, (T, B, 4, 24, 28), dtype=torch.uint8, generator=generator),
        "core_reset": reset,
        "core_state": torch.randn(state.shape, generator=generator),
        "last_actions": torch.randint(A, (T, B), generator=generator),
        "last_rewards": torch.randn(T, B, generator=generator),
        "instructions": ids,
    }


def _numbers(*parameters: Tensor) -> tuple[Array, ...]:
    return tuple(p.detach().double().numpy() for p in parameters)


def _expected(agent: Agent, inputs: dict[str, Tensor]) -> tuple[Array, Array, Array]:
    """Logits, values and core state, computed from the torso's features in float64 loops."""
    features = agent.torso(inputs["frames"].flatten(0, 1), None, torch.float32).detach().double().numpy().reshape(T, B, -1)
    rows = np.empty((T, B), dtype=object)
    for t, b in np.ndindex(T, B):
        parts = [features[t, b]]
        if agent.last_action_and_reward:
            action, has_previous = int(inputs["last_actions"][t, b]), not inputs["core_reset"][t, b]
            parts += [np.array([float(inputs["last_rewards"][t, b])]), np.array([float(a == action and has_previous) for a in range(A)])]
        if agent.language is not None:
            lstm = dict(agent.language.lstm.named_parameters())
            w, u, b1, b2 = _numbers(lstm["weight_ih_l0"], lstm["weight_hh_l0"], lstm["bias_ih_l0"], lstm["bias_hh_l0"])
            (embedding,) = _numbers(agent.language.embedding.weight)
            parts.append(read_instruction(inputs["instructions"][t, b].tolist(), embedding, (w, u, b1 + b2), 16))
        rows[t, b] = np.concatenate(parts)
    joined, state = np.array(rows.tolist()), inputs["core_state"].double().numpy()
    if isinstance(agent.core, LSTMCore):
        w, u, bias = _numbers(agent.core.input_weight, agent.core.hidden_weight, agent.core.bias)
        joined, state = lstm_with_resets(joined, inputs["core_reset"].numpy(), state, (w, u, bias))
    elif agent.joint is not None:
        weight, bias = _numbers(agent.joint.weight, agent.joint.bias)
        joined = relu(joined @ weight.T + bias)
    (policy, policy_bias), (value, value_bias) = (_numbers(h.weight, h.bias) for h in (_action_head(agent), agent.value_head))
    return joined @ policy.T + policy_bias, joined @ value.T + value_bias, state


NETWORKS: list[dict[str, Any]] = [
    {},
    {"last_action_and_reward": True},
    {"core": {"kind": "lstm", "size": 16}},
    {"core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True, "language": True},
    {"language": True, "torso": "mlp"},
    {"head": "dueling"},
    {"num_values": 3},
    {"head": "dueling", "core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True},
]


@pytest.mark.parametrize("network", NETWORKS)
def test_heads_core_and_side_inputs_agree_with_the_oracle(network: dict[str, Any]) -> None:
    agent = _agent(**network)
    inputs = _inputs(agent)
    output, state = agent(**inputs)
    logits, values, expected_state = _expected(agent, inputs)
    np.testing.assert_allclose(output.parameters.detach().numpy(), logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(output.values.detach().numpy(), values, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(state.detach().numpy(), expected_state, rtol=1e-4, atol=1e-5)
    # An actor's passes of one row each give the same.
    row_state, rows = inputs.pop("core_state"), []
    for t in range(T):
        row, row_state = agent(core_state=row_state, **{name: tensor[t : t + 1] for name, tensor in inputs.items()})
        rows.append(row)
    torch.testing.assert_close(torch.cat([row.parameters for row in rows]), output.parameters, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.cat([row.values for row in rows]), output.values, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(row_state, state, rtol=1e-4, atol=1e-5)


def test_the_memory_order_of_frames_does_not_matter() -> None:
    agent = _agent()
    inputs = _inputs(agent)
    expected, _ = agent(**inputs)
    planes = inputs["frames"]
    wide = torch.zeros(T, B + 2, 24, 28, 4, dtype=torch.uint8)
    wide[:, 1:-1] = planes.movedim(2, -1)
    for frames in (
        planes.movedim(2, -1).contiguous().movedim(-1, 2),
        wide[:, 1:-1].movedim(-1, 2),
        planes.transpose(0, 1).contiguous().transpose(0, 1),
    ):
        inputs["frames"] = frames
        assert not frames.is_contiguous()
        output, _ = agent(**inputs)
        torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("torso", ["shallow", "deep"])
def test_an_inference_copy_equals_the_learner_in_bfloat16(torso: str) -> None:
    agent = _agent(torso=torso, core=LSTMSettings(size=16))
    inputs = _inputs(agent)
    exact, _ = agent(**inputs)
    acting = agent.for_inference(torch.bfloat16)
    agent.compute_dtype = torch.bfloat16
    learning, _ = agent(**inputs)
    with torch.inference_mode():
        acted, _ = acting(**inputs)
    assert torch.equal(acted.parameters, learning.parameters)
    assert torch.equal(acted.values, learning.values)
    assert acted.parameters.dtype == acted.values.dtype == torch.float32
    error = (acted.parameters - exact.parameters).norm() / exact.parameters.norm()
    assert 0 < error < 0.02


def test_an_inference_copy_changes_only_when_weights_are_loaded() -> None:
    agent, newer = _agent(), _agent()
    acting = agent.for_inference(torch.bfloat16)
    with torch.no_grad():
        for parameter in newer.parameters():
            parameter.mul_(1.5)
    inputs = _inputs(agent)
    before, _ = acting(**inputs)
    agent.load_state_dict(newer.state_dict())
    assert torch.equal(acting(**inputs)[0].values, before.values)
    acting.load_state_dict(newer.state_dict())
    assert torch.equal(acting(**inputs)[0].values, newer.for_inference(torch.bfloat16)(**inputs)[0].values)
    assert not torch.equal(acting(**inputs)[0].values, before.values)
    assert not any(p.requires_grad for p in acting.parameters())
    assert acting.state_dict()["torso.dense.weight"].dtype == torch.bfloat16  # this halves the memory read at every step
    assert all(p.dtype == torch.float32 and p.requires_grad for p in agent.parameters())


def test_dmlab_networks_have_the_parameter_counts_of_the_paper() -> None:
    spec = _spec(72, 96, stack=1, channels=3, actions=9, words=16)
    for torso, millions in (("shallow", 1.2), ("deep", 1.6)):
        network = NetworkSettings.model_validate({"torso": torso, "core": "lstm", "last_action_and_reward": True, "language": True})
        count = sum(p.numel() for p in Agent(spec=spec, network=network).parameters())
        assert round(count / 1e6, 1) == millions


@pytest.mark.parametrize("head", ["policy_value", "dueling"])
def test_the_first_policy_is_nearly_uniform(head: Head) -> None:
    torch.manual_seed(19)
    agent = Agent(spec=_spec(), network=NetworkSettings(), head=head)
    output, _ = agent(**_inputs(agent))
    probabilities = output.parameters.softmax(-1)
    assert probabilities.max() - probabilities.min() < 0.05
    assert output.values.std() > 10 * output.parameters.std()


def test_invalid_networks_and_missing_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="instructions"):
        Agent(spec=_spec(words=0), network=NetworkSettings(language=True))
    with pytest.raises(TorsoError, match="nature"):
        Agent(spec=_spec(24, 28), network=NetworkSettings(torso=NatureTorsoSettings()))
    agent = _agent(language=True)
    inputs = _inputs(agent)
    del inputs["instructions"]
    with pytest.raises(ValueError, match="none were given"):
        agent(**inputs)


def test_instructions_of_any_length_agree_with_the_oracle() -> None:
    torch.manual_seed(5)
    encoder = InstructionEncoder(1001)
    ids = [[[3, 1000, 7, 0], [0, 0, 0, 0]], [[3, 1000, 7, 0], [9, 0, 0, 0]], [[7, 3, 1, 2], [3, 1000, 7, 0]]]
    features = encoder(torch.tensor(ids)).detach().numpy()
    lstm = dict(encoder.lstm.named_parameters())
    w, u, b1, b2 = _numbers(lstm["weight_ih_l0"], lstm["weight_hh_l0"], lstm["bias_ih_l0"], lstm["bias_hh_l0"])
    (embedding,) = _numbers(encoder.embedding.weight)
    for t, b in np.ndindex(3, 2):
        np.testing.assert_allclose(features[t, b], read_instruction(ids[t][b], embedding, (w, u, b1 + b2), 4), rtol=1e-5, atol=1e-6)
    assert not features[0, 1].any()


def test_the_network_reads_all_words_that_the_suite_announces() -> None:
    spec = EnvSpec(("talk",), (0, 0, 0), 1, discrete(3), 1, instruction_length=20, num_words=5000, vector_size=2)
    agent = Agent(spec=spec, network=NetworkSettings(torso=MLPTorsoSettings(), language=True))
    words = torch.full((2, 20), 4999)
    words[1, 19] = 4998
    row = torch.zeros(1, 2, dtype=torch.int64)
    output, _ = agent(None, row.bool(), agent.core.initial_state(2), row, row.float(), words.unsqueeze(0), torch.zeros(1, 2, 2))
    assert not torch.equal(output.features[0, 0], output.features[0, 1])
