"""What the host reads from the device arrives in order and without waiting, unless the host is too far ahead. GPU events are simulated."""

from __future__ import annotations

from typing import Any

import torch

from herd.training.readback import MAX_UPDATES_AHEAD, Readback


class _Event:
    """The event of a copy. It is done when it has been waited for, or when the device has got that far."""

    def __init__(self) -> None:
        self.is_done = False
        self.num_waits = 0

    def query(self) -> bool:
        return self.is_done

    def synchronize(self) -> None:
        self.num_waits += 1
        self.is_done = True


def _sent(number: int, readback: Readback[float]) -> _Event:
    readback.send([torch.tensor(float(number))], lambda here: here[0].item())
    event = _Event()
    copied: Any = event
    readback._sent[-1] = readback._sent[-1]._replace(copied=copied)
    return event


def test_the_host_waits_only_if_too_far_ahead_of_the_device() -> None:
    readback: Readback[float] = Readback()
    events = [_sent(number, readback) for number in range(MAX_UPDATES_AHEAD)]
    assert readback.arrived() == []
    events.append(_sent(MAX_UPDATES_AHEAD, readback))
    assert readback.arrived() == [0.0]
    assert [event.num_waits for event in events] == [1, *[0] * MAX_UPDATES_AHEAD]
    events[2].is_done = True  # finished out of order: earlier ones are returned first
    assert readback.arrived() == []
    events[1].is_done = True
    assert readback.arrived() == [1.0, 2.0]
    events.append(_sent(9, readback))
    assert readback.arrived(wait=True) == [9.0]
    assert events[-1].num_waits == 1
