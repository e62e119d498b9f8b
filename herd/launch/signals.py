"""Signals for which the main loop can wait."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

from herd.service.signals import STOPPING

if TYPE_CHECKING:
    from types import FrameType, TracebackType


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
