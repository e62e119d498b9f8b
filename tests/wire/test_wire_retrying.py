"""R8 to R10 of docs/messaging.md: how every client handles a request, whatever it asks for."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from herd.protocols.weights.messages import WEIGHTS, GetWeights, NotModified
from herd.rpc.codec import encode
from herd.rpc.envelope import Message, Refused
from herd.rpc.request import CONNECTING_SECONDS, RetryingRequest, RetryTimer
from herd.transport import Frame


class Line:
    """Stands in for a DEALER, with a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.is_connected = True
        self.sent: list[int] = []
        self.waiting: deque[list[Frame]] = deque()

    def clock(self) -> float:
        return self.now

    def send(self, frames: list[Frame]) -> bool:
        if self.is_connected:
            message = WEIGHTS.decode(frames[0])
            assert isinstance(message, GetWeights)
            self.sent.append(message.id)
        return self.is_connected

    def receive(self) -> list[memoryview] | None:
        return [memoryview(frame) for frame in self.waiting.popleft()] if self.waiting else None

    def hear(self, message: Message) -> None:
        self.waiting.append(encode(message))


def question(request_id: int) -> list[Frame]:
    return encode(GetWeights(id=request_id, run="run", agent=0, contract="c", have=None))


@pytest.fixture
def line() -> Line:
    return Line()


def make(line: Line, *, renumbers: bool = True) -> RetryingRequest:
    return RetryingRequest(line, WEIGHTS, question, renumbers=renumbers, clock=line.clock, random=Random(3))  # type: ignore[arg-type]


def seconds_until_sent(line: Line, request: RetryingRequest) -> float:
    began = line.now
    while not request.advance():
        line.now += 0.01
    return line.now - began


@pytest.mark.parametrize("renumbers", [True, False])
def test_a_request_is_repeated_with_doubling_delays_until_answered(line: Line, renumbers: bool) -> None:
    request = make(line, renumbers=renumbers)
    assert not request.advance()  # no request was made
    request.begin()
    assert request.advance()
    assert not request.advance()
    for base in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert 0.5 * base - 0.02 <= seconds_until_sent(line, request) <= 1.5 * base + 0.02
    assert line.sent == (list(range(1, 8)) if renumbers else [1] * 7)
    request.answered()
    line.now += 1000.0
    assert not request.advance()
    request.begin()
    assert request.advance()
    assert 0.5 - 0.02 <= seconds_until_sent(line, request) <= 1.5 + 0.02
    assert line.sent[7:] == ([8, 9] if renumbers else [2, 2])


def test_without_a_connection_retries_are_quick(line: Line) -> None:
    request = make(line)
    line.is_connected = False
    request.begin()
    for _ in range(500):
        assert not request.advance()
        assert request.rest_seconds == pytest.approx(CONNECTING_SECONDS)
        line.now += CONNECTING_SECONDS * 1.01
    line.is_connected = True
    assert request.advance()
    assert len(line.sent) == 1
    assert 0.5 - 0.02 <= seconds_until_sent(line, request) <= 1.5 + 0.02


def test_only_an_answer_to_the_newest_request_is_accepted(line: Line) -> None:
    request = make(line)
    assert not request.is_answer(NotModified(id=0, held=None))
    request.begin()
    request.advance()
    seconds_until_sent(line, request)
    for request_id in (1, 2, 3):
        line.hear(NotModified(id=request_id, held=None))
    assert [request.is_answer(message) for message, _ in request.answers()] == [False, True, False]
    request.answered()
    assert not request.is_answer(NotModified(id=2, held=None))


def test_a_refusal_is_reported_and_the_request_repeated(line: Line) -> None:
    request = make(line)
    request.begin()
    request.advance()
    line.hear(Refused(id=7, reason="to somebody else"))
    assert list(request.answers()) == []
    assert (request.refused, request.num_refused) == (None, 0)
    for number, request_id in enumerate((1, 0), start=1):
        line.hear(Refused(id=request_id, reason=f"reason {number}"))
        assert list(request.answers()) == []
        assert (request.refused, request.num_refused) == (f"reason {number}", number)
    seconds_until_sent(line, request)
    assert request.refused == "reason 2"
    request.answered()
    assert request.refused is None


def test_malformed_answers_are_counted_and_skipped(line: Line) -> None:
    request = make(line)
    line.waiting.append([b"\xc1"])
    line.waiting.append([*encode(NotModified(id=4, held=None)), b"payload"])
    [(message, payloads)] = request.answers()
    assert message == NotModified(id=4, held=None)
    assert [bytes(payload) for payload in payloads] == [b"payload"]
    assert request.num_malformed == 1


def test_an_awaited_answer_can_be_overdue_without_a_request(line: Line) -> None:
    request = make(line)
    request.await_answer()
    assert not request.is_overdue
    line.now += 1.6
    assert request.is_overdue
    request.begin()
    assert request.advance()
    assert seconds_until_sent(line, request) >= 1.0 - 0.02  # silence has doubled the delay


def test_a_request_not_begun_at_once_waits_for_the_delay(line: Line) -> None:
    request = make(line)
    request.begin(at_once=False)
    assert request.is_pending
    assert 0.5 - 0.02 <= seconds_until_sent(line, request) <= 1.5 + 0.02


def test_delays_are_randomized_per_client() -> None:
    """Each client waits another part of half a second to one and a half; a timer that runs already is not postponed."""
    line, delays = Line(), set()
    for seed in range(20):
        timer, began = RetryTimer(line.clock, Random(seed)), line.now
        timer.start()
        while not timer.due:
            line.now += 0.001
            timer.start()
        delays.add(round(line.now - began, 3))
    assert len(delays) > 15
    assert max(delays) - min(delays) > 0.5
