"""glibc's allocator, set up for tensors that come and go.

Activations above 32 MiB are otherwise mapped and unmapped at every operation, and the kernel zeroes their pages each time: the
identical arithmetic then takes 1.5 to 2.2 times as long. The variables are read when a process starts, so they must stand
in its environment before.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING

from herd.service.signals import hold_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.service.signals import StopRequest

ALLOCATOR_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    # Waiting threads sleep instead of spinning: actors need the cores that a spinning learner would hold.
    "OMP_WAIT_POLICY": "PASSIVE",
}
RETURN_SECONDS = 30.0


def return_free_memory() -> bool:
    """Give the kernel back what is free inside the heap; False where the C library cannot. Takes milliseconds per 100 MB.

    Under the environment above glibc keeps whatever it once had, and large blocks that come and go at odd times (a checkpoint's) leave
    holes that the regular ones do not fit: without this the heap grows by a few MB each time, for hours.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except AttributeError:
        return False


class FreeMemory:
    """Gives back every half a minute what a server no longer holds.

    After a burst of messages the heap keeps its height otherwise: one small block at its top is enough.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, give_back: Callable[[], object] = return_free_memory) -> None:
        self._clock = clock
        self._give_back = give_back
        self._due = clock() + RETURN_SECONDS

    def tick(self) -> None:
        """Call it in every turn of the main loop."""
        if self._clock() >= self._due:
            self._give_back()
            self._due = self._clock() + RETURN_SECONDS


def ensure_tuned_allocator(module: str, stop: StopRequest | None = None) -> None:
    """Start ``python -m module`` again under the tuned environment, once, where a variable is missing. Call before importing torch.

    ``stop``: of a process that makes a `StopRequest` first of all; no request is lost on the way.
    """
    if all(name in os.environ for name in ALLOCATOR_ENVIRONMENT):
        return
    if stop is not None:
        hold_signals()
        if stop:  # it came before they were held: the new program would not know
            raise SystemExit(0)
    environment = {**ALLOCATOR_ENVIRONMENT, **os.environ}
    os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)  # noqa: S606  our own module, no shell
