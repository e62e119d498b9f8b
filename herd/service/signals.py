"""Requests to stop a process. Imports almost nothing, so that it can be used before slow imports."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import FrameType, TracebackType

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


class SignalInbox:
    """While entered, records requests to stop, and wakes ``wait`` on them and when a child ends. For the main thread only.

    SIGHUP stays ignored if the command was started so (nohup).
    """

    def __init__(self) -> None:
        self.asked = False
        """A stop was requested: by Ctrl-C, by the platform, or because the terminal was closed."""
        self.insisted = False
        """Ctrl-C was pressed again. Only Ctrl-C counts, because a closing terminal sends SIGHUP twice, from shell and kernel."""

    def __enter__(self) -> SignalInbox:
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers = [number for number in STOPPING if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._on_signal) for number in (*numbers, signal.SIGCHLD)}
        # If the pipe is full, a wake-up is already waiting.
        self._previous_wakeup = signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._readable)
        os.close(self._writable)

    def wait(self, seconds: float) -> None:
        """Sleep until a signal arrives or the time is over."""
        ready, _, _ = select.select([self._readable], [], [], max(0.0, seconds))
        if ready:
            os.read(self._readable, 4096)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signature is Python's
        if number in STOPPING:
            self.insisted = self.insisted or (self.asked and number == signal.SIGINT)
            self.asked = True
