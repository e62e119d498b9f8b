"""What asks who a client is: libzmq does at every handshake with a server of this process, over an in-process socket (ZAP)."""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING

from zmq.auth.thread import ThreadAuthenticator

if TYPE_CHECKING:
    import zmq

    from herd.wire.refusals import Refusals


class Gate(ThreadAuthenticator):
    """Answers in a thread of its own; subclasses say who gets in, and count in ``refusals`` who does not."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], refusals: Refusals) -> None:
        super().__init__(context, log=logging.getLogger("herd.wire.zap"))
        self._refusals = refusals

    def start(self) -> None:
        """Start the thread; it is stopped before the interpreter ends, when a thread could not be joined any more."""
        super().start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop the thread and close its sockets."""
        atexit.unregister(self.stop)
        super().stop()
