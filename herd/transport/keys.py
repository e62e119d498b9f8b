"""Who may connect: clients with a key (CURVE), or those that know the token of the run.

Encryption is libzmq's (CurveZMQ, RFC 26). libzmq asks an authenticator at every handshake with a server of this process, over an in-process
socket; the authenticators are pyzmq's (ZAP, RFC 27).
"""

from __future__ import annotations

import atexit
import hmac
import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from herd.config.encryption_keys import (
    RUN_TOKEN_VARIABLE,
    SERVER_PUBLIC_FILE,
    SERVER_PUBLIC_VARIABLE,
    SERVER_SECRET_FILE,
    SERVER_SECRET_VARIABLE,
    client_key_files,
    load_client_keys,
    load_server_keys,
    read_key,
)
from herd.config.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.config.run import SecuritySettings
    from herd.telemetry.logs import LimitedWarnings
    from herd.transport.context import Refusals

MESSAGE_OVERHEAD_BYTES = 64
"""A frame grows by 33 bytes (command name, nonce, flags, authenticator); MAXMSGSIZE counts what arrives."""
REFRESH_SECONDS = 1.0
"""Interval between reads of all key files. An added or deleted file is noticed at once, one rewritten in place within this time."""
_DOMAIN = "herd"
"""With an enforced domain, a server whose authenticator has ended refuses every client; otherwise it would admit every client."""
_USER = b"run"
_SHOWN_CHARACTERS = 16
"""Characters of an unknown public key in the log: enough to find its file."""


class Authenticator(ThreadAuthenticator):
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


class Guard(ABC):
    """Secures the sockets of one process, and admits clients to its servers. Its authenticator starts with the first server."""

    welcome_bytes: int
    """The most bytes that a server sends before a client has authenticated."""
    _authenticator: Authenticator | None = None

    @abstractmethod
    def secure_client(self, socket: zmq.Socket[bytes]) -> str:
        """Let a client authenticate at every handshake; return the name of its key, or where its token comes from.

        Raises:
            SettingsError: a key is missing or invalid.

        """

    @abstractmethod
    def secure_server(self, socket: zmq.Socket[bytes]) -> AuthorisedClients | None:
        """Admit only clients that authenticate; return them if they have keys.

        Raises:
            SettingsError: a key is missing or invalid, or no client would be admitted.

        """

    def close(self) -> None:
        """Stop the authenticator: no further client is admitted. Closing again does nothing."""
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None

    def _guard(self, socket: zmq.Socket[bytes], authenticator: Callable[[], Authenticator]) -> None:
        if self._authenticator is None:
            self._authenticator = authenticator()
            self._authenticator.start()
        socket.setsockopt_string(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def new_key_pair() -> tuple[bytes, bytes]:
    """Generate a (public, secret) key pair, 32 bytes each, from the system's random source.

    Raises:
        SettingsError: this ZeroMQ was built without CURVE.

    """
    require_curve()
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)


def require_curve() -> None:
    """Check that ZeroMQ has CURVE, as every wheel of pyzmq does.

    Raises:
        SettingsError: it was built without CURVE.

    """
    if not zmq.has("curve"):
        raise SettingsError("this pyzmq was built without CURVE: install its wheel (pip install --force-reinstall pyzmq)")


def check_server_key(security: SecuritySettings, environ: Mapping[str, str]) -> None:
    """Check, where the keys of both sides are, that the servers' public key belongs to their secret key: no client could connect.

    Raises:
        SettingsError: a key is missing or invalid, or the public key is that of other servers.

    """
    client, server = load_client_keys(security, environ), load_server_keys(security, environ)
    if client is None or server is None:
        return
    require_curve()
    if z85.decode(zmq.curve_public(z85.encode(server.secret.get_secret_value()))) != client.server_public:
        where = SERVER_PUBLIC_VARIABLE if security.curve_keys is None else security.curve_keys / SERVER_PUBLIC_FILE
        secret = SERVER_SECRET_VARIABLE if security.curve_keys is None else SERVER_SECRET_FILE
        raise SettingsError(f"{where}: is the public key of other servers, not of {secret} here: copy both from the same folder")


class Curve(Guard):
    """The keys of one process. They are read when the first socket of a role needs them."""

    welcome_bytes = 240  # a greeting of 64 and a WELCOME of 170; READY follows

    def __init__(self, security: SecuritySettings, environ: Mapping[str, str], refusals: Refusals, log: LimitedWarnings) -> None:
        require_curve()
        self._security = security
        self._environ = environ
        self._refusals = refusals
        self._log = log
        self.authorised: AuthorisedClients | None = None
        """The clients that this process's servers admit; None before the first server."""

    def secure_client(self, socket: zmq.Socket[bytes]) -> str:
        """See `Guard`."""
        keys = load_client_keys(self._security, self._environ)
        assert keys is not None
        secret = z85.encode(keys.secret.get_secret_value())
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(secret))
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        return keys.name

    def secure_server(self, socket: zmq.Socket[bytes]) -> AuthorisedClients:
        """See `Guard`."""
        keys = load_server_keys(self._security, self._environ)
        assert keys is not None
        if self.authorised is None:
            self.authorised = AuthorisedClients(keys.clients, keys.folder, self._log)
        authorised = self.authorised
        self._guard(socket, lambda: _KeyAuthenticator(socket.context, authorised, self._refusals))
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.get_secret_value())
        return authorised


class AuthorisedClients:
    """The public keys that are admitted; keys in a folder are read again when it changes. Thread-safe."""

    def __init__(
        self, clients: Mapping[bytes, str], folder: Path | None, log: LimitedWarnings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with ``clients`` (public key -> name) read from ``folder``; with None they never change."""
        self._names = _by_text(clients)
        self._folder = folder
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: object = None  # so that changes since ``clients`` were read are noticed
        self._folder_time = 0
        self._look_at = 0.0

    def admits(self, public_key: str) -> bool:
        """Whether the client with this key (in Z85, as ZeroMQ writes it) is admitted."""
        return public_key in self._names

    def name_of(self, public_key: str) -> str | None:
        """Return the name of this key, such as ``client-actor-7``; None if it is not admitted."""
        return self._names.get(public_key)

    def refresh(self) -> None:
        """Read the folder again if there is one and it is time to. If it cannot be read, log that and keep the known keys."""
        if self._folder is None:
            return
        try:
            with self._lock:
                self._refresh(self._folder)
        except OSError as error:
            self._log.warn(
                "folder of keys", f"{self._folder}: cannot be read: {error.strerror or error}; accepted clients keep their access"
            )

    def _refresh(self, folder: Path) -> None:
        now = self._clock()
        folder_time = folder.stat().st_mtime_ns
        if folder_time == self._folder_time and now < self._look_at:
            return
        self._look_at = now + REFRESH_SECONDS
        self._folder_time = folder_time
        files = client_key_files(folder)
        seen = [(file.name, (status := file.stat()).st_mtime_ns, status.st_size, status.st_ino) for file in files]
        if seen != self._seen:
            self._names = _by_text(self._read(files))
            self._seen = seen

    def _read(self, files: list[Path]) -> dict[bytes, str]:
        clients: dict[bytes, str] = {}
        for file in files:
            try:
                clients[read_key(file, "")] = file.stem
            except SettingsError as error:
                self._log.warn(f"key file {file.name}"[:64], f"{error}; this client is refused")
        return clients


class _KeyAuthenticator(Authenticator):
    """Admits known keys and counts the others."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], authorised: AuthorisedClients, refusals: Refusals) -> None:
        super().__init__(context, refusals)
        self._authorised = authorised
        self._address = ""
        self.configure_curve_callback(_DOMAIN, self)

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Note the client's address: the callback receives only the key."""
        self._address = msg[3].decode("ascii", "replace") if len(msg) > 3 else ""
        await super().handle_zap_message(msg)

    def callback(self, _domain: str, key: bytes) -> bool:
        """Return whether to admit the client with this public key (Z85). Must not raise: that would end the thread."""
        self._authorised.refresh()
        if self._authorised.admits(key.decode("ascii")):
            return True
        shown = z85.decode(key).hex()[:_SHOWN_CHARACTERS]
        self._refusals.add(
            "unknown_key",
            f"refused a client with an unknown key, public key {shown}..., from {self._address}: if it is one of yours, copy its "
            "client-NAME.public into the folder of keys here",
        )
        return False


def _by_text(clients: Mapping[bytes, str]) -> dict[str, str]:
    return {z85.encode(key).decode("ascii"): name for key, name in clients.items()}


class RunToken(Guard):
    """Secures the sockets of one process with the token of a run without keys: ``herd train`` draws it and gives it to its children.

    It keeps out other users of the machine and anyone else who can reach the port. It is sent unencrypted at each handshake (PLAIN, RFC 24)
    and does not authenticate the messages that follow, so use keys across a network.
    """

    welcome_bytes = 68  # a greeting of 64; WELCOME (10 bytes) and READY follow

    def __init__(self, token: str, refusals: Refusals) -> None:
        """``token``: at most 255 bytes; ``refusals`` counts clients with another token."""
        self._token = token.encode()[:255]
        self._refusals = refusals

    def secure_client(self, socket: zmq.Socket[bytes]) -> str:
        """See `Guard`."""
        socket.setsockopt(zmq.PLAIN_USERNAME, _USER)
        socket.setsockopt(zmq.PLAIN_PASSWORD, self._token)
        return RUN_TOKEN_VARIABLE

    def secure_server(self, socket: zmq.Socket[bytes]) -> None:
        """See `Guard`."""
        self._guard(socket, lambda: _TokenAuthenticator(socket.context, self._token, self._refusals))
        socket.setsockopt(zmq.PLAIN_SERVER, 1)


class _TokenAuthenticator(Authenticator):
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
