"""Weights that cannot be used are dropped, counted and requested again a second later; the actor keeps the weights that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from herd_actor.meters import Meters
from herd_actor.weights import UNUSABLE_SECONDS, FreshWeights
from torch import nn

from herd.checkpoints.weights import encode_weights, load_into
from herd.config.settings import ActorSettings
from herd.telemetry.telemetry import Telemetry
from herd.wire.weights_client import WeightsFrame


class Server:
    """Answers every request at once with the next payload; the last payload is repeated."""

    refused = None
    pending = False

    def __init__(self, *payloads: bytes) -> None:
        self.frames = [WeightsFrame(lineage, 1, (memoryview(payload),), ("",)) for lineage, payload in enumerate(payloads, start=1)]
        self.have: list[Any] = []
        self.pauses: list[float] = []

    def request(self, have: object) -> None:
        self.have.append(have)

    def poll(self, _timeout: float) -> WeightsFrame:
        return self.frames.pop(0) if len(self.frames) > 1 else self.frames[0]

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def close(self) -> None:
        pass


def weights(value: float, dtype: torch.dtype = torch.float32, inputs: int = 3) -> bytes:
    return encode_weights({"weight": torch.full((2, inputs), value, dtype=dtype), "bias": torch.zeros(2)})


STRIDES = b'{"weight":{"dtype":"F32","shape":[2147483647,2147483647,2147483647,0],"data_offsets":[0,0]}}'
HOSTILE = {
    "strides beyond 63 bits": len(STRIDES).to_bytes(8, "little") + STRIDES,
    "no safetensors": b"",
    "another network": weights(1.0, inputs=4),
    "another kind of number": weights(1, torch.int64),
    "not a number": weights(float("nan")),
    "infinite": weights(float("inf"), torch.bfloat16),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_an_actor_keeps_its_weights_if_new_ones_are_unusable(payload: bytes) -> None:
    network = nn.Linear(3, 2)
    server = Server(weights(1.0), payload, weights(3.0))
    telemetry = Telemetry("actor", "run")
    fresh = FreshWeights(
        server,  # type: ignore[arg-type]
        SimpleNamespace(load=lambda tensors, _: load_into(network, tensors)),  # type: ignore[arg-type]
        ActorSettings(),
        telemetry=telemetry,
        meters=Meters(telemetry),
        stop=False,
        while_waiting=lambda: None,
    )
    fresh.wait_for_others(None)
    assert fresh.version == (1, 1)
    fresh.before_unroll()
    assert fresh.version == (1, 1)
    assert bool((network.weight == 1.0).all())
    assert server.pauses == [UNUSABLE_SECONDS]
    assert fresh.num_unusable == 1
    fresh.before_unroll()
    # The request names the version that the actor acts on, so a version number below the hostile one is accepted too.
    assert server.have == [None, (1, 1), (1, 1)]
    assert fresh.version == (3, 1)
    assert bool((network.weight == 3.0).all())


def test_an_actor_waits_for_usable_first_weights() -> None:
    network = nn.Linear(3, 2)
    server = Server(*HOSTILE.values(), weights(2.0))
    telemetry = Telemetry("actor", "run")
    fresh = FreshWeights(
        server,  # type: ignore[arg-type]
        SimpleNamespace(load=lambda tensors, _: load_into(network, tensors)),  # type: ignore[arg-type]
        ActorSettings(),
        telemetry=telemetry,
        meters=Meters(telemetry),
        stop=False,
        while_waiting=lambda: None,
    )
    fresh.wait_for_others(None)
    assert fresh.version == (len(HOSTILE) + 1, 1)
    assert fresh.num_unusable == len(HOSTILE)
