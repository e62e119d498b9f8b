from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from herd.protocols.weights.messages import WEIGHTS, IndexLeased, LeaseIndex, Place, ReleaseIndex
from herd.protocols.weights.places import IndexLease
from herd.rpc.codec import encode
from herd.rpc.envelope import Refused
from herd.transport import Limits
from herd.transport.context import Context, Poller

DEADLINE_SECONDS = 20.0


class Leaser:
    """Answers each request with the next entry of ``script``: a place, or a reason to refuse."""

    def __init__(self, context: Context, lease_seconds: float) -> None:
        self.router = context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1))
        self.lease_seconds = lease_seconds
        self.script: list[Place | str] = []
        self.requests: list[LeaseIndex | ReleaseIndex] = []

    def pump(self) -> None:
        Poller(self.router).poll(0.02)
        while (received := self.router.receive()) is not None:
            message = WEIGHTS.decode(received[1][0])
            assert isinstance(message, LeaseIndex | ReleaseIndex)
            self.requests.append(message)
            if isinstance(message, LeaseIndex) and self.script:
                answer = self.script.pop(0)
                reply = (
                    Refused(id=message.id, reason=answer)
                    if isinstance(answer, str)
                    else IndexLeased(id=message.id, place=(answer[0], answer[1]), lease_seconds=self.lease_seconds)
                )
                self.router.send(received[0], encode(reply))


@pytest.fixture
def leaser(context: Context) -> Iterator[Leaser]:
    made = Leaser(context, 0.03)
    yield made
    made.router.close()


def acquire(lease: IndexLease, leaser: Leaser) -> Place | None:
    """Runs ``acquire`` in its own thread, because it blocks; ZeroMQ sockets may move between threads with a memory barrier."""
    found: list[Place | None] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    thread = threading.Thread(target=lambda: found.append(lease.acquire(lambda: time.monotonic() < deadline)))
    thread.start()
    while thread.is_alive():
        leaser.pump()
    thread.join()
    return found[0]


def test_a_place_is_leased_renewed_moved_and_released(context: Context, leaser: Leaser) -> None:
    """R39: after a renewal has moved the holder, it names the new place."""
    lease = IndexLease(context, leaser.router.endpoint, run_id="run")
    leaser.script = ["not yet", Place(1, 7), Place(1, 7), Place(2, 1), Place(2, 1)]
    assert acquire(lease, leaser) == (1, 7)
    assert lease.refused is None
    deadline = time.monotonic() + DEADLINE_SECONDS
    while leaser.script:
        assert time.monotonic() < deadline
        lease.poll()
        leaser.pump()
    assert lease.place == (2, 1)
    asked = [message.place for message in leaser.requests if isinstance(message, LeaseIndex)]
    assert asked == [None, None, (1, 7), (1, 7), (2, 1)]
    lease.close()
    while not isinstance(leaser.requests[-1], ReleaseIndex):
        assert time.monotonic() < deadline
        leaser.pump()
    assert len({message.client for message in leaser.requests}) == 1


def test_acquire_stops_when_told(context: Context, leaser: Leaser) -> None:
    lease = IndexLease(context, leaser.router.endpoint, run_id="run")
    answers = iter([True, False])
    assert lease.acquire(lambda: next(answers)) is None
    lease.close()
