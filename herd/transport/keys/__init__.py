"""Who may connect: keys (CURVE) or the token of the run.

libzmq asks at every handshake with a server of this process, over an in-process socket (ZAP).
"""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING

from zmq.auth.thread import ThreadAuthenticator

if TYPE_CHECKING:
    import zmq

    from herd.transport.context import Refusals


class Gate(ThreadAuthenticator):
    """Answers in its own thread; subclasses decide which clients to admit, and count the others in ``refusals``."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], refusals: Refusals) -> None:
        super().__init__(context, log=logging.getLogger("herd.transport.zap"))
        self._refusals = refusals

    def start(self) -> None:
        """Start the thread; it is stopped before the interpreter ends, because later it could not be joined."""
        super().start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop the thread and close its sockets."""
        atexit.unregister(self.stop)
        super().stop()
