"""Which link a message takes. There are no sockets: the test gives credit to the clients."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.links import Sent, UnrollLinks, choose_shards, shards_of_agent
from herd.transport import Client, Limits
from herd.transport.context import Context

UNROLLS = {"frames": np.zeros((2, 1), np.uint8)}


class FakeClient:
    """Gets credit ``after_polls`` polls after it has asked."""

    def __init__(self, socket: Client, *, credit: int = 0, after_polls: int | None = None) -> None:
        self.socket = socket
        self.credit_unrolls = credit
        self.after_polls = after_polls
        self.asked = 0
        self.sent = 0
        self.acked_sequence = 0
        self.refused: str | None = None

    def has_credit(self, num_unrolls: int) -> bool:
        return self.credit_unrolls >= num_unrolls

    def request_credit(self, num_unrolls: int) -> None:  # noqa: ARG002  as the real one
        self.asked += 1

    def poll(self) -> None:
        if self.asked and self.after_polls is not None:
            self.after_polls -= 1
            if self.after_polls <= 0:
                self.credit_unrolls, self.after_polls = self.credit_unrolls + 2, None

    def send_unrolls(self, arrays: dict[str, Any], *, num_frames: int, episodes: object) -> int:  # noqa: ARG002  as the real one
        self.credit_unrolls -= len(arrays["frames"])
        self.sent += 1
        return self.sent


class Clock:
    """A clock that advances 10 ms with each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


@pytest.fixture
def dealers() -> Any:
    with Context() as context:
        made = [context.client("tcp://127.0.0.1:9", f"x{number}", Limits(max_frame_bytes=1)) for number in range(2)]
        yield made
        for dealer in made:
            dealer.close()


def links(*clients: FakeClient) -> UnrollLinks:
    return UnrollLinks(cast("list[UnrollClient]", list(clients)), Clock())


def test_links_are_spread_evenly_over_shards() -> None:
    shards = [f"shard{number}" for number in range(3)]
    chosen = [choose_shards(shards, 2, actor) for actor in range(6)]
    assert chosen[:3] == [["shard0", "shard1"], ["shard1", "shard2"], ["shard2", "shard0"]]
    assert {shard: sum(shard in each for each in chosen) for shard in shards} == dict.fromkeys(shards, 4)
    assert choose_shards(shards, 9, 1) == ["shard1", "shard2", "shard0"]
    assert choose_shards(["only"], 2, 5) == ["only"]


def test_messages_alternate_between_links(dealers: list[Client]) -> None:
    first, second = FakeClient(dealers[0], credit=4), FakeClient(dealers[1], credit=4)
    sender = links(first, second)
    sent = [sender.send_unrolls(UNROLLS, num_frames=8) for _ in range(4)]
    assert sent == [Sent(0, 1), Sent(1, 1), Sent(0, 2), Sent(1, 2)]
    with pytest.raises(RuntimeError, match="credit"):
        sender.send_unrolls(UNROLLS, num_frames=8)
    first.acked_sequence = 1
    assert [sender.is_acked(each) for each in sent] == [True, False, False, False]


def test_credit_is_requested_from_one_shard_and_only_if_none_is_held(dealers: list[Client]) -> None:
    first, second = FakeClient(dealers[0]), FakeClient(dealers[1])
    sender = links(first, second)
    sender.request_credit(2)
    assert (first.asked, second.asked) == (1, 0)
    second.credit_unrolls = 2
    sender.request_credit(2)
    assert (first.asked, second.asked) == (1, 0)
    assert sender.send_unrolls(UNROLLS, num_frames=8) == Sent(1, 1)


def test_a_shard_without_credit_is_skipped(dealers: list[Client]) -> None:
    starving, full = FakeClient(dealers[1], after_polls=2), FakeClient(dealers[0])
    sender = links(full, starving)
    assert sender.wait_for_credit(2, timeout_seconds=5.0)
    assert full.asked
    assert starving.asked
    assert sender.send_unrolls(UNROLLS, num_frames=8) == Sent(1, 1)
    assert 0.0 < sender.blocked_seconds < 5.0
    before = sender.blocked_seconds
    assert not sender.wait_for_credit(2, timeout_seconds=0.3)
    assert sender.blocked_seconds >= before + 0.3


def test_addresses_are_divided_evenly_among_agents() -> None:
    endpoints = ["a0", "a1", "b0", "b1"]
    assert shards_of_agent(endpoints, 2, 0) == ["a0", "a1"]
    assert shards_of_agent(endpoints, 2, 1) == ["b0", "b1"]
    assert shards_of_agent(endpoints, 1, 0) == endpoints
    for num_agents in (3, 5):
        with pytest.raises(ValueError, match=rf"--learner has 4 addresses, .* agents, {num_agents}"):
            shards_of_agent(endpoints, num_agents, 0)
