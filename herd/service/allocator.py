"""Configures glibc's allocator for short-lived tensors.

By default, activations above 32 MiB are mapped and unmapped at every operation, and the kernel zeroes their pages each time, so the same
arithmetic takes 1.5 to 2.2 times as long. glibc reads the variables when a process starts, so they must be set before.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING

from herd.components.user_code import PYTHON
from herd.service.signals import hold_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.service.signals import StopRequest

ALLOCATOR_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    # Waiting threads sleep instead of spinning, because actors need the cores.
    "OMP_WAIT_POLICY": "PASSIVE",
}
RETURN_SECONDS = 30.0


def return_free_memory() -> bool:
    """Return free memory of the heap to the kernel; False if the C library cannot. Takes milliseconds per 100 MB.

    With the environment above, glibc keeps all memory that it ever had. Large blocks that are used rarely (for a checkpoint) leave gaps
    that regular blocks do not fit, so without this function the heap would grow by a few MB each time, for hours.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except AttributeError:
        return False


class FreeMemory:
    """Returns the free memory of a server to the kernel every half minute.

    Otherwise the heap does not shrink after a burst of messages, because one small block at its top is enough to prevent it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, give_back: Callable[[], object] = return_free_memory) -> None:
        self._clock = clock
        self._give_back = give_back
        self._due = clock() + RETURN_SECONDS

    def tick(self) -> None:
        """Release memory if it is time. Call it in every turn of the main loop."""
        if self._clock() >= self._due:
            self._give_back()
            self._due = self._clock() + RETURN_SECONDS


def ensure_tuned_allocator(module: str, stop: StopRequest | None = None) -> None:
    """Replace this process by ``python -m module`` with the tuned environment, once, if a variable is missing. Call before importing torch.

    ``stop``: the `StopRequest` of the process; no request is lost.
    """
    if all(name in os.environ for name in ALLOCATOR_ENVIRONMENT):
        return
    if stop is not None:
        hold_signals()
        if stop:  # the request came before signals were held: the new program would not see it
            raise SystemExit(0)
    environment = {**ALLOCATOR_ENVIRONMENT, **os.environ}
    os.execve(sys.executable, [*PYTHON, "-m", module, *sys.argv[1:]], environment)  # noqa: S606  our own module, no shell
