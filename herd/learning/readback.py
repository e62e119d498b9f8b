"""Tensors on their way from the device to the host, which does not wait for them.

On a GPU a copy into page-locked memory is queued behind the update that they are of, and read once it is there. On a CPU they are there
at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

MAX_UPDATES_AHEAD = 2
"""Of the host before the device: one that is computed and one queued behind it keep the device busy. Each holds a batch in its memory."""


class _Sent(NamedTuple, Generic[T]):
    tensors: list[Tensor]
    """On the host, or on their way there."""
    read: Callable[[list[Tensor]], T]
    copied: torch.cuda.Event | None
    """None: they are there."""


class Readback(Generic[T]):
    """First in, first out."""

    def __init__(self) -> None:
        self._sent: deque[_Sent[T]] = deque()

    @property
    def is_under_way(self) -> bool:
        """Whether there is something that `arrived` has not given."""
        return bool(self._sent)

    def send(self, tensors: Sequence[Tensor], read: Callable[[list[Tensor]], T]) -> None:
        """Queue a copy of ``tensors``, all on one device; ``read`` makes of those on the host what `arrived` gives.

        On a CPU they are not copied: ask `arrived` before they change.
        """
        if not tensors[0].is_cuda:
            self._sent.append(_Sent(list(tensors), read, None))
            return
        here = [torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True) for tensor in tensors]
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        self._sent.append(_Sent(here, read, copied))

    def arrived(self, *, wait: bool = False) -> list[T]:
        """What has come since the last call.

        It waits for all under way where ``wait`` says so, otherwise only while they are more than `MAX_UPDATES_AHEAD`.
        """
        most = 0 if wait else MAX_UPDATES_AHEAD
        here = []
        while self._sent:
            first = self._sent[0]
            if first.copied is not None and not first.copied.query():  # type: ignore[no-untyped-call]
                if len(self._sent) <= most:
                    break
                first.copied.synchronize()
            self._sent.popleft()
            here.append(first.read(first.tensors))
        return here
