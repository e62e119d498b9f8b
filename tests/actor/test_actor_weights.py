"""Weights that cannot be used are dropped and requested again; otherwise each unroll begins with new weights, fetched once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from herd_actor.actor import Actor
from herd_actor.meters import Meters
from herd_actor.weights import FreshWeights, RepeatableWeights
from torch import nn

from herd.acting.policy import UNUSABLE_SECONDS
from herd.config.run import RunSettings
from herd.config.services import ActorSettings
from herd.protocols.weights.client import WeightsFrame
from herd.run.tensors import encode_weights, load_into
from herd.telemetry.telemetry import Telemetry


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


def fresh_weights(server: Any, load: Callable[..., object], kind: type[FreshWeights] = FreshWeights, **more: Any) -> Any:
    """Weights from ``server``, which ``load`` puts into the policy."""
    telemetry = Telemetry("actor", "run")
    options = {"telemetry": telemetry, "meters": Meters(telemetry), "stop": False, "while_waiting": lambda: None}
    return kind(server, SimpleNamespace(load=load), ActorSettings(), **options | more)  # type: ignore[arg-type]


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
    fresh = fresh_weights(server, lambda tensors, _: load_into(network, tensors))
    fresh.wait_for_others(None)
    assert fresh.version == (1, 1)
    fresh.before_unroll()
    assert fresh.version == (1, 1)
    assert bool((network.weight == 1.0).all())
    assert server.pauses == [UNUSABLE_SECONDS]
    fresh.before_unroll()
    # The request names the version that the actor acts on, so a version number below the hostile one is accepted too.
    assert server.have == [None, (1, 1), (1, 1)]
    assert fresh.version == (3, 1)
    assert bool((network.weight == 3.0).all())


def test_an_actor_waits_for_usable_first_weights() -> None:
    network = nn.Linear(3, 2)
    server = Server(*HOSTILE.values(), weights(2.0))
    fresh = fresh_weights(server, lambda tensors, _: load_into(network, tensors))
    fresh.wait_for_others(None)
    assert fresh.version == (len(HOSTILE) + 1, 1)
    assert server.pauses == [UNUSABLE_SECONDS] * len(HOSTILE)


@dataclass
class Publishing:
    """Answers a request with the version that was the newest when the request was made, once it is polled."""

    newest: int = 1
    num_requests: int = 0
    answer: WeightsFrame | None = None
    pending: bool = False
    refused: None = None

    def request(self, have: tuple[int, int] | None) -> None:
        if not self.pending:
            self.pending = True
            self.num_requests += 1
            newer = have is None or (1, self.newest) > have
            self.answer = WeightsFrame(1, self.newest, (memoryview(weights(1.0)),), ("",)) if newer else None

    def poll(self, _timeout: float) -> WeightsFrame | None:
        self.pending = False
        return self.answer


@pytest.mark.parametrize("credit", ["at_send", "before_unroll"])
@pytest.mark.parametrize(
    ("waits", "num_requests"),
    # One request before the first unroll. The first wait makes the answer that is under way too old; then another request follows.
    [((0.0, 0.0, 0.0), 1 + 3), ((1.0, 1.0, 1.0), 1 + 3 + 1), ((0.0, 1.0, 0.0), 1 + 3 + 1)],
)
def test_unrolls_begin_with_the_newest_weights_fetched_once(credit: str, waits: tuple[float, ...], num_requests: int) -> None:
    server = Publishing()
    loaded: list[object] = []
    fresh = fresh_weights(server, lambda _, version: loaded.append(version))
    fresh.before_unroll()
    for waited in waits:
        for row in range(3):
            server.newest += 1
            fresh.before_row(is_last=row == 2)
        for seconds in (waited, 0.0) if credit == "at_send" else (0.0, waited):  # the unroll is sent in between
            server.newest += seconds > 0
            fresh.after_wait(seconds)
        fresh.before_unroll()
        assert fresh.version == (1, server.newest)
    assert (server.num_requests, len(loaded)) == (num_requests, num_requests)


@pytest.mark.parametrize(
    ("credit", "turns"),
    [("at_send", ["refresh", "play", "wait", "send"]), ("before_unroll", ["wait", "refresh", "play", "wait", "send"])],
)
def test_the_policy_is_told_of_every_wait_for_credit(credit: str, turns: list[str]) -> None:
    events: list[str] = []
    policies = SimpleNamespace(
        before_unroll=lambda: events.append("refresh"), after_wait=lambda _: events.append("wait"), before_send=lambda _: None
    )
    sender = SimpleNamespace(wait_for_credit=lambda: True, send=lambda _: events.append("send"))
    settings = RunSettings.model_validate({"actor": {"credit": credit}, "learner": {"max_policy_lag": 3}})
    actor = Actor.__new__(Actor)
    vars(actor).update(_settings=settings, _groups=[], _assignment=False, _policies=policies, _sender=sender, _num_environments=16)

    def play() -> str:
        events.append("play")
        return "unrolls"

    with mock.patch.object(Actor, "_unroll", side_effect=play):
        playing = actor.play()
        next(playing)
        next(playing)
    assert events == turns * 2


@pytest.mark.parametrize(
    ("batch", "reuse", "interval", "expected"),
    # Messages of 16 unrolls. The version that must have arrived before each message is sent, if the run began with version 7.
    [
        (16, 1, 1, [7, 8, 9, 10]),
        (32, 1, 1, [7, 7, 8, 8]),
        (8, 2, 1, [7, 11, 15, 19]),
        (24, 1, 1, [7, 7, 8, 9]),
        (16, 1, 3, [7, 7, 9, 9]),
        (16, 2, 3, [7, 9, 9, 12]),
    ],
)
def test_a_repeatable_message_waits_for_all_before_it(batch: int, reuse: int, interval: int, expected: list[int]) -> None:
    server = Publishing(newest=7)
    needed: list[int] = []

    def learn() -> None:
        server.newest += 1  # one update more while the actor waits

    fresh = fresh_weights(
        server,
        lambda _, version: needed.append(version[1]),
        RepeatableWeights,
        while_waiting=learn,
        unrolls_per_batch=batch,
        updates_per_batch=reuse,
        publish_interval_updates=interval,
    )
    fresh.wait_for_others(None)
    server.newest = 7
    fresh.version = (1, 7)
    found = []
    for _ in expected:
        fresh.before_unroll()
        fresh.before_row(is_last=True)
        fresh.before_send(16)
        found.append(fresh.version[1])
    assert found == expected


def test_a_run_that_cannot_repeat_any_more_takes_the_newest_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herd_actor.weights.REPEATABLE_SECONDS", 0.0)
    server = Publishing(newest=7)
    fresh = fresh_weights(
        server,
        lambda *_: None,
        RepeatableWeights,
        while_waiting=lambda: None,
        unrolls_per_batch=16,
        updates_per_batch=1,
        publish_interval_updates=1,
    )
    fresh.wait_for_others(None)
    fresh.before_send(16)
    fresh.before_send(16)  # the update on the first message never comes
    server.newest = 30
    fresh.before_unroll()
    assert fresh.version == (1, 30)
