"""Copies tensors from the device to the host without waiting.

On a GPU, a copy into page-locked memory is queued behind the update that produces the tensors, and read when it has finished. On a CPU the
tensors are available at once.
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
"""Maximum number of updates that the host may be ahead of the device: one that is computed and one queued behind it keep the device busy.
Each holds a batch in memory."""


class _Sent(NamedTuple, Generic[T]):
    tensors: list[Tensor]
    """The tensors on the host, possibly still being copied."""
    read: Callable[[list[Tensor]], T]
    copied: torch.cuda.Event | None
    """Event that signals the end of the copy; None: it is complete."""


class Readback(Generic[T]):
    """Copies under way, first in, first out."""

    def __init__(self) -> None:
        self._sent: deque[_Sent[T]] = deque()

    @property
    def is_under_way(self) -> bool:
        """Whether there are results that `arrived` has not returned."""
        return bool(self._sent)

    def send(self, tensors: Sequence[Tensor], read: Callable[[list[Tensor]], T]) -> None:
        """Queue a copy of ``tensors``, all on one device; ``read`` converts them on the host to the result that `arrived` returns.

        On a CPU they are not copied: call `arrived` before they change.
        """
        if not tensors[0].is_cuda:
            self._sent.append(_Sent(list(tensors), read, None))
            return
        here = [torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True) for tensor in tensors]
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        self._sent.append(_Sent(here, read, copied))

    def arrived(self, *, wait: bool = False) -> list[T]:
        """Return the results that have arrived since the last call.

        With ``wait`` it waits for all copies under way, otherwise only while there are more than `MAX_UPDATES_AHEAD`.
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
