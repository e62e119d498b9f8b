"""The token of a run without keys: ``herd train`` draws it, gives it to its children, and every server requires it.

It keeps out other users of the machine and anyone else who can reach the port. It is sent unencrypted at each handshake (PLAIN, RFC 24)
and does not authenticate the messages that follow, so use keys across a network. The authenticator is pyzmq's (ZAP, RFC 27).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import zmq

from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.transport.keys import Gate

if TYPE_CHECKING:
    from herd.transport.context import Refusals

WELCOME_BYTES = 68
"""Bytes that a server sends before it has received the token: a greeting of 64. WELCOME (10 bytes) and READY follow."""
_DOMAIN = "herd"
"""With an enforced domain, a server whose authenticator has ended refuses every client."""
_USER = b"run"


class RunToken:
    """Secures the sockets of one process with the run's token."""

    def __init__(self, token: str, refusals: Refusals) -> None:
        """``token``: at most 255 bytes; ``refusals`` counts clients with another token."""
        self._token = token.encode()[:255]
        self._refusals = refusals
        self._gate: _Gate | None = None

    def secure_client(self, socket: zmq.Socket[bytes]) -> str:
        """Send the token at every handshake; return its source."""
        socket.setsockopt(zmq.PLAIN_USERNAME, _USER)
        socket.setsockopt(zmq.PLAIN_PASSWORD, self._token)
        return RUN_TOKEN_VARIABLE

    def secure_server(self, socket: zmq.Socket[bytes]) -> None:
        """Admit only clients that send the token."""
        if self._gate is None:
            self._gate = _Gate(socket.context, self._token, self._refusals)
            self._gate.start()
        socket.setsockopt(zmq.PLAIN_SERVER, 1)
        socket.setsockopt_string(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def close(self) -> None:
        """Stop the authenticator: no further client is admitted. Closing again does nothing."""
        if self._gate is not None:
            self._gate.stop()
            self._gate = None


class _Gate(Gate):
    """Admits clients that know the token."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], token: bytes, refusals: Refusals) -> None:
        super().__init__(context, refusals)
        self._token = token

    def _authenticate_plain(self, domain: str, username: str, password: str) -> tuple[bool, bytes]:  # noqa: ARG002  libzmq enforces the domain
        # Compared in constant time, because the number of attempts is not limited.
        if hmac.compare_digest(password.encode(errors="replace"), self._token):
            return True, b"OK"
        self._refusals.add("unknown_key", "refused a client that does not know this run's token: is it of another run, or a stranger?")
        return False, b"unknown token"
