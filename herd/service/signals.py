"""Requests to stop a process. Imports almost nothing, so that it can be used before slow imports."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals from the platform, from Ctrl-C, and from a closing terminal."""


class Stop(Protocol):
    """True when the present activity must end."""

    def __bool__(self) -> bool: ...


class StopRequest:
    """Set by SIGTERM, SIGINT or SIGHUP: finish the present work, then exit 0. Repeated signals have no effect.

    Create it before slow imports, so that a process that is stopped while it starts also exits with code 0. SIGHUP stays ignored if the
    process was started so (nohup).
    """

    def __init__(self) -> None:
        self._requested = False
        for number in STOPPING:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, self._on_signal)
        # Signals that `hold_signals` held back while this program replaced another are delivered now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def __bool__(self) -> bool:
        """Whether the process was asked to stop."""
        return self._requested

    def end(self) -> None:
        """Ignore signals from now on, because the process is about to exit.

        Python's shutdown replaces handlers by the default, so a late signal would kill a process that has ended well.
        """
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signature is Python's
        # Nothing else: a handler runs between two bytecodes of the interrupted code, which may hold a lock.
        self._requested = True


def hold_signals() -> None:
    """Hold signals until the next `StopRequest` is created, also across ``exec``, which resets handlers but not the signal mask."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
