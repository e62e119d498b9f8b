"""How a process is told to stop. Imports next to nothing, so that it can stand before everything that takes its time."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Asked by the platform, by a person at the keyboard, by a terminal that goes away."""


class Stop(Protocol):
    """True once what is going on must end."""

    def __bool__(self) -> bool: ...


class StopRequest:
    """Set by SIGTERM, SIGINT or SIGHUP: finish what is under way, then exit 0. Asked again, nothing changes.

    Make it before the slow imports: a process asked to stop while it starts ends with exit code 0 as well. SIGHUP stays ignored
    where the process was started so (nohup).
    """

    def __init__(self) -> None:
        self._requested = False
        for number in STOPPING:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, self._on_signal)
        # Held back by `hold_signals` while this program replaced another: what came meanwhile arrives now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def __bool__(self) -> bool:
        """Whether the process was asked to stop."""
        return self._requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signature is Python's
        # Only this: a handler runs between two bytecodes of whatever was interrupted, where a lock could be held already.
        self._requested = True


def hold_signals() -> None:
    """Keep requests to stop waiting until the next `StopRequest` is made, also across ``exec``: handlers end there, the mask does not."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
