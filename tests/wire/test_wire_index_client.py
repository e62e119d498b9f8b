from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from herd.wire.codec import decode_header, encode
from herd.wire.index_client import IndexLease
from herd.wire.messages import IndexLeased, LeaseIndex, Refused, ReleaseIndex
from herd.wire.sockets import Context, Poller, Router, new_context

DEADLINE_SECONDS = 20.0


class Leaser:
    """Answers each request with what is next in ``script``: an index, or a reason to refuse."""

    def __init__(self, context: Context, lease_seconds: float) -> None:
        self.router = Router(context, "tcp://127.0.0.1:*", max_frame_bytes=1)
        self.lease_seconds = lease_seconds
        self.script: list[int | str] = []
        self.requests: list[LeaseIndex | ReleaseIndex] = []

    def pump(self) -> None:
        Poller(self.router).poll(0.02)
        while (received := self.router.receive()) is not None:
            message = decode_header(received[1][0])
            assert isinstance(message, LeaseIndex | ReleaseIndex)
            self.requests.append(message)
            if isinstance(message, LeaseIndex) and self.script:
                answer = self.script.pop(0)
                reply = (
                    Refused(request_id=message.request_id, reason=answer)
                    if isinstance(answer, str)
                    else IndexLeased(request_id=message.request_id, index=answer, lease_seconds=self.lease_seconds)
                )
                self.router.send(received[0], encode(reply))


@pytest.fixture
def context() -> Iterator[Context]:
    made = new_context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def leaser(context: Context) -> Iterator[Leaser]:
    made = Leaser(context, 0.03)
    yield made
    made.router.close()


def acquire(lease: IndexLease, leaser: Leaser) -> int | None:
    """``acquire`` in a thread of its own, as it blocks; ZeroMQ sockets may move between threads with a barrier between."""
    found: list[int | None] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    thread = threading.Thread(target=lambda: found.append(lease.acquire(lambda: time.monotonic() < deadline)))
    thread.start()
    while thread.is_alive():
        leaser.pump()
    thread.join()
    return found[0]


def test_an_index_is_leased_renewed_and_released(context: Context, leaser: Leaser) -> None:
    lease = IndexLease(context, leaser.router.endpoint, run_id="run")
    leaser.script = ["not yet", 7, 7, 7]
    assert acquire(lease, leaser) == 7
    assert lease.refused is None
    deadline = time.monotonic() + DEADLINE_SECONDS
    while leaser.script:
        assert time.monotonic() < deadline
        lease.poll()
        leaser.pump()
    assert not lease.lost
    asked = [message.index for message in leaser.requests if isinstance(message, LeaseIndex)]
    assert asked[:2] == [None, None]
    assert set(asked[2:]) == {7}
    lease.close()
    while not isinstance(leaser.requests[-1], ReleaseIndex):
        assert time.monotonic() < deadline
        leaser.pump()
    assert len({message.holder for message in leaser.requests}) == 1


def test_an_index_given_to_another_is_lost(context: Context, leaser: Leaser) -> None:
    lease = IndexLease(context, leaser.router.endpoint, run_id="run")
    leaser.script = [7, 8]
    assert acquire(lease, leaser) == 7
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not lease.lost:
        assert time.monotonic() < deadline
        lease.poll()
        leaser.pump()
    lease.close()


def test_waiting_for_an_index_ends_when_told(context: Context, leaser: Leaser) -> None:
    lease = IndexLease(context, leaser.router.endpoint, run_id="run")
    answers = iter([True, False])
    assert lease.acquire(lambda: next(answers)) is None
    lease.close()
