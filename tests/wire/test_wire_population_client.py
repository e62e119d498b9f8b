"""A member's reports: how often they are sent, what happens when an answer is lost, and which order is accepted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from herd.protocols.population.client import PopulationClient
from herd.protocols.population.messages import POPULATION, MemberAnswer, MemberReport, Order
from herd.rpc.codec import encode


class _Dealer:
    """A socket controlled by the test."""

    def __init__(self, *_: object, **__: object) -> None:
        self.sent: list[MemberReport] = []
        self.incoming: list[list[memoryview]] = []

    def send(self, frames: list[Any]) -> bool:
        message = POPULATION.decode(frames[0])
        assert isinstance(message, MemberReport)
        self.sent.append(message)
        return True

    def receive(self) -> list[memoryview] | None:
        return self.incoming.pop(0) if self.incoming else None

    def answer(self, message: Any, *payloads: bytes) -> None:
        self.incoming.append([memoryview(frame) for frame in (*encode(message), *payloads)])


@pytest.fixture
def parts() -> tuple[PopulationClient, _Dealer, list[float]]:
    now = [100.0]
    client = PopulationClient(SimpleNamespace(client=_Dealer), "tcp://x", interval_seconds=1.0, clock=lambda: now[0])  # type: ignore[arg-type]
    return client, client.socket, now  # type: ignore[return-value]


def _standing(updates: int) -> MemberReport:
    return MemberReport(
        id=0,
        run="run",
        agent=1,
        contract="c",
        env_frames=10 * updates,
        learner_updates=updates,
        num_episodes=0,
        fitness=None,
        checkpoint=None,
        settings=(),
        applied=None,
        declined=None,
    )


def _order(number: int) -> Order:
    return Order(number=number, copied=None, settings=())


def test_the_newest_standing_is_reported_once_an_interval(parts: tuple[PopulationClient, _Dealer, list[float]]) -> None:
    client, dealer, now = parts
    client.poll()
    assert dealer.sent == []  # there is nothing to report yet
    client.standing = _standing(1)
    client.poll()
    client.poll()
    assert [report.learner_updates for report in dealer.sent] == [1]
    dealer.answer(MemberAnswer(id=dealer.sent[-1].id, order=None))
    client.standing = _standing(2)
    client.standing = _standing(3)
    client.poll()
    assert len(dealer.sent) == 1
    now[0] += 1.0
    client.poll()
    assert [report.learner_updates for report in dealer.sent] == [1, 3]
    dealer.answer(MemberAnswer(id=dealer.sent[-1].id, order=None))
    client.standing = _standing(4)
    client.report_now()
    client.poll()
    assert [report.learner_updates for report in dealer.sent] == [1, 3, 4]


def test_only_the_newest_answer_may_set_an_order(parts: tuple[PopulationClient, _Dealer, list[float]]) -> None:
    client, dealer, now = parts
    client.standing = _standing(1)
    client.poll()
    dealer.answer(MemberAnswer(id=dealer.sent[-1].id, order=_order(7)))
    client.poll()
    assert client.order == _order(7)
    assert client.is_heard
    client.standing = _standing(2)
    assert not client.is_heard
    now[0] += 1.0
    client.poll()
    late = dealer.sent[-1].id - 1
    dealer.answer(MemberAnswer(id=late, order=_order(3)))  # answers the previous report
    # has a payload, so it is not a valid answer
    dealer.answer(MemberAnswer(id=dealer.sent[-1].id, order=_order(4)), b"more")
    client.poll()
    assert client.order == _order(7)
    dealer.answer(MemberAnswer(id=dealer.sent[-1].id, order=None))
    client.poll()
    assert client.order is None
    assert client.is_heard
