"""The instruction encoder against float64 steps over the words."""

from __future__ import annotations

import numpy as np
import torch

from herd.agent import Agent
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.config.run import NetworkSettings
from herd.contract.spaces import EnvSpec, discrete
from herd.networks.layers import InstructionEncoder
from tests.oracles.networks_layers import read_instruction

torch.set_num_threads(1)


def _encoder() -> InstructionEncoder:
    torch.manual_seed(5)
    return InstructionEncoder(1001)


def _expected(encoder: InstructionEncoder, ids: list[int]) -> np.ndarray:
    lstm = {name: p.detach().double().numpy() for name, p in encoder.lstm.named_parameters()}
    weights = (lstm["weight_ih_l0"], lstm["weight_hh_l0"], lstm["bias_ih_l0"] + lstm["bias_hh_l0"])
    return read_instruction(ids, encoder.embedding.weight.detach().double().numpy(), weights, len(ids))


def test_features_agree_with_the_oracle_for_every_row() -> None:
    encoder = _encoder()
    ids = [[[3, 1000, 7, 0], [0, 0, 0, 0]], [[3, 1000, 7, 0], [9, 0, 0, 0]], [[7, 3, 1, 2], [3, 1000, 7, 0]]]
    features = encoder(torch.tensor(ids)).detach().numpy()
    for t, b in np.ndindex(3, 2):
        np.testing.assert_allclose(features[t, b], _expected(encoder, ids[t][b]), rtol=1e-5, atol=1e-6)
    assert not features[0, 1].any()


def test_padding_does_not_change_the_features() -> None:
    encoder = _encoder()
    torch.testing.assert_close(encoder(torch.tensor([[[4, 8, 0, 0, 0]]])), encoder(torch.tensor([[[4, 8]]])))


def test_the_network_reads_all_words_that_the_suite_announces() -> None:
    spec = EnvSpec(("talk",), (0, 0, 0), 1, discrete(3), 1, instruction_length=20, num_words=5000, vector_size=2)
    agent = Agent(spec=spec, network=NetworkSettings(torso=MLPTorsoSettings(), language=True))
    words = torch.full((2, 20), 4999)
    words[1, 19] = 4998
    row = torch.zeros(1, 2, dtype=torch.int64)
    state = agent.core.initial_state(2)
    output, _ = agent(None, row.bool(), state, row, row.float(), words.unsqueeze(0), torch.zeros(1, 2, 2))
    assert not torch.equal(output.features[0, 0], output.features[0, 1])


def test_only_words_and_not_padding_get_gradients() -> None:
    encoder = _encoder()
    encoder(torch.tensor([[[4, 8, 0]]])).sum().backward()
    gradient = encoder.embedding.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(dim=1).nonzero().flatten().tolist() == [4, 8]
