"""Real sockets over loopback: with right and wrong keys, with a token, and without either."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs
from zmq.utils import z85

from herd.cli.keys import make_keys
from herd.config.encryption_keys import (
    CLIENT_PUBLIC_VARIABLE,
    CLIENT_SECRET_VARIABLE,
    RUN_TOKEN_VARIABLE,
    SERVER_PUBLIC_VARIABLE,
    SERVER_SECRET_VARIABLE,
    load_server_keys,
)
from herd.config.errors import SettingsError
from herd.config.run import SecuritySettings
from herd.rpc.serving import role_of
from herd.telemetry.logs import LimitedWarnings, get_logger
from herd.telemetry.metrics import AUTHENTICATION_FAILURES_BY
from herd.transport import AddressInUse, Client, Limits, Peer, Server
from herd.transport import tcp as sockets
from herd.transport.connections import GREETING_BYTES
from herd.transport.context import Context, Poller, Refusals
from herd.transport.keys import AuthorisedClients, check_server_key, new_key_pair
from tests.clock import Clock

DEADLINE_SECONDS = 60.0
MEBIBYTE = 1 << 20
NO_COMMON_MECHANISM = ("mechanism", "incomplete")
"""Both sides notice that they do not match; the second one to notice finds the connection closed."""


@pytest.fixture(autouse=True)
def _files_are_private() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    make_keys(folder)
    return folder


@pytest.fixture
def contexts() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Serving(NamedTuple):
    context: Context
    router: Server

    def count(self, reason: str) -> int:
        return self.context.refusals.count(reason)


def with_keys(folder: Path, client: str = "default") -> SecuritySettings:
    return SecuritySettings(curve_keys=folder, curve_client=client)


def token(text: str | None) -> dict[str, str]:
    """The environment of a process with this token."""
    return {} if text is None else {RUN_TOKEN_VARIABLE: text}


def serve(contexts: ExitStack, security: SecuritySettings | None, environ: dict[str, str] | None = None) -> Serving:
    context = contexts.enter_context(Context(security, environ or {}))
    return Serving(context, contexts.enter_context(context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE))))


def dial(
    contexts: ExitStack, server: Serving, security: SecuritySettings | None, environ: dict[str, str] | None = None, name: str = "peer"
) -> Client:
    context = contexts.enter_context(Context(security, environ or {}))
    return contexts.enter_context(context.client(server.router.endpoint, name, Limits(max_frame_bytes=MEBIBYTE)))


def until(condition: Callable[[], bool], server: Serving, *dealers: Client) -> list[bytes]:
    """Drive both sides until ``condition`` holds; returns the headers that the server received meanwhile."""
    poller = Poller(server.router, *dealers)
    taken: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        poller.poll(0.02)
        for dealer in dealers:
            dealer.receive()
        while (received := server.router.receive()) is not None:
            taken.append(bytes(received[1][0]))
    return taken


def ask(server: Serving, dealer: Client, header: bytes = b"header") -> Peer:
    """Send one message, and receive its answer; returns who sent it, as the server sees it."""
    poller = Poller(server.router, dealer)
    until(lambda: dealer.send([header]), server, dealer)
    while (received := server.router.receive()) is None:
        assert server.router in poller.poll(DEADLINE_SECONDS)
    peer, frames = received
    assert [bytes(frame) for frame in frames] == [header]
    assert server.router.send(peer, [b"answer"])
    assert dealer.wait(DEADLINE_SECONDS)
    answer = dealer.receive()
    assert answer is not None
    assert bytes(answer[0]) == b"answer"
    return peer


def assert_refused(server: Serving, dealer: Client, *reasons: str, times: int = 2) -> None:
    """Check that the dealer is refused repeatedly, and that no message reaches the server's owner."""

    def failures() -> int:
        return sum(server.count(reason) for reason in reasons)

    before = failures()
    taken = until(lambda: failures() >= before + times, server, dealer)
    assert taken == []
    assert not dealer.connected
    assert not dealer.send([b"header"])


def test_one_process_may_be_both_server_and_client(contexts: ExitStack, keys: Path) -> None:
    make_keys(keys, client="other")
    server = serve(contexts, with_keys(keys))
    first = dial(contexts, server, with_keys(keys), name="first")
    other = dial(contexts, server, with_keys(keys, "other"), name="other")
    ask(server, first)
    ask(server, other)
    # A learner is a server, and also a client of another server, with the same context.
    root = serve(contexts, with_keys(keys))
    with server.context.client(root.router.endpoint, "publisher", Limits(max_frame_bytes=0)) as publisher:
        ask(root, publisher)
    assert first.trouble is None
    assert not any(server.count(reason) + root.count(reason) for reason in AUTHENTICATION_FAILURES_BY)


class Tap:
    """Forwards one connection and records its bytes."""

    def __init__(self, endpoint: str) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._target = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self.endpoint = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.seen = bytearray()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.close()
        self._thread.join(DEADLINE_SECONDS)

    def _run(self) -> None:
        client, _ = self._server.accept()
        with client, socket.create_connection(self._target) as target, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, target)
            selector.register(target, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select(DEADLINE_SECONDS):
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    self.seen += data
                    key.data.sendall(data)


@pytest.mark.parametrize("encrypted", [True, False])
def test_contents_and_names_are_encrypted_on_the_network(contexts: ExitStack, keys: Path, encrypted: bool) -> None:
    security = with_keys(keys) if encrypted else None
    server = serve(contexts, security)
    tap = Tap(server.router.endpoint)
    with Context(security) as context, context.client(tap.endpoint, "actor/3", Limits(max_frame_bytes=MEBIBYTE)) as dealer:
        ask(server, dealer, b"something worth hiding")
        dealer.close()
    tap.close()
    hidden = [word not in tap.seen for word in (b"something worth hiding", b"answer", b"actor/3")]
    assert hidden == [encrypted] * 3


@pytest.mark.parametrize("encrypted", [True, False])
def test_the_frame_limit_excludes_the_encryption_overhead(contexts: ExitStack, keys: Path, encrypted: bool) -> None:
    security = with_keys(keys) if encrypted else None
    server = serve(contexts, security)
    dealer = dial(contexts, server, security)
    largest = os.urandom(MEBIBYTE)
    until(lambda: dealer.send([b"header", largest]), server, dealer)
    poller = Poller(server.router, dealer)
    while (received := server.router.receive()) is None:
        assert server.router in poller.poll(DEADLINE_SECONDS)
    assert bytes(received[1][1]) == largest


def test_an_unknown_key_is_refused_until_it_is_added(contexts: ExitStack, keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "stranger")
    stranger = tmp_path / "stranger"
    (stranger / "server.public").write_text((keys / "server.public").read_text())
    server = serve(contexts, with_keys(keys))
    dealer = dial(contexts, server, with_keys(stranger))
    assert_refused(server, dealer, "unknown_key")
    assert "does not know this client's key (client-default)" in (dealer.trouble or "")
    (keys / "client-stranger.public").write_text((stranger / "client-default.public").read_text())
    ask(server, dealer)  # neither side restarts
    until(lambda: dealer.connected and dealer.trouble is None, server, dealer)


def test_a_key_is_revoked_by_deleting_its_file(contexts: ExitStack, keys: Path) -> None:
    make_keys(keys, client="kept")
    server = serve(contexts, with_keys(keys))
    kept = dial(contexts, server, with_keys(keys, "kept"), name="kept")
    revoked = dial(contexts, server, with_keys(keys), name="revoked")
    ask(server, kept)
    ask(server, revoked)
    (keys / "client-default.public").unlink()
    # The open connection is no longer served.
    until(lambda: revoked.send([b"late"]) and server.count("revoked") > 0, server, revoked)
    assert until(lambda: revoked.send([b"late"]) and server.count("revoked") > 20, server, revoked) == []
    # A new connection is refused.
    revoked.close()
    assert_refused(server, dial(contexts, server, with_keys(keys), name="revoked"), "unknown_key")
    # Other clients are not affected.
    ask(server, kept)


def test_a_client_with_another_servers_public_key_is_refused(contexts: ExitStack, keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "elsewhere")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "client-default.secret").write_text((keys / "client-default.secret").read_text())
    (mixed / "server.public").write_text((tmp_path / "elsewhere" / "server.public").read_text())
    server = serve(contexts, with_keys(keys))
    dealer = dial(contexts, server, with_keys(mixed))
    assert_refused(server, dealer, "wrong_server_key", times=4)
    until(lambda: dealer.trouble is not None, server, dealer)
    assert "server.public" in (dealer.trouble or "")


@pytest.mark.parametrize("encrypted", ["server", "client"])
def test_neither_side_goes_without_encryption(contexts: ExitStack, keys: Path, encrypted: str) -> None:
    server = serve(contexts, with_keys(keys) if encrypted == "server" else None)
    dealer = dial(contexts, server, with_keys(keys) if encrypted == "client" else None)
    assert_refused(server, dealer, *NO_COMMON_MECHANISM)
    until(lambda: dealer.trouble is not None, server, dealer)
    assert "CURVE" in (dealer.trouble or "")
    assert "security.curve_keys" in (dealer.trouble or "")


def test_a_server_with_a_forged_key_is_refused(contexts: ExitStack, keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "forged")
    (tmp_path / "forged" / "client-default.public").write_text((keys / "client-default.public").read_text())
    forged = serve(contexts, with_keys(tmp_path / "forged"))
    dealer = dial(contexts, forged, with_keys(keys))
    assert_refused(forged, dealer, "wrong_server_key")


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_server_without_its_authenticator_refuses_all_clients(
    contexts: ExitStack, keys: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_MILLISECONDS", 200)
    security, environ = (with_keys(keys), {}) if encrypted else (None, token("secret"))
    server = serve(contexts, security, environ)
    transport: Any = server.context._transport("tcp://")
    transport.guard.close()
    dealer = dial(contexts, server, security, environ)
    assert_refused(server, dealer, "incomplete", "protocol", times=1)


def test_curve_works_with_keys_from_the_environment(contexts: ExitStack) -> None:
    security = SecuritySettings(curve_keys_from_environment=True)
    (server_public, server_secret), (public, secret), (other_public, _) = (new_key_pair() for _ in range(3))
    of_server = {SERVER_SECRET_VARIABLE: server_secret.hex(), CLIENT_PUBLIC_VARIABLE: f"{other_public.hex()}, {public.hex()}"}
    of_client = {SERVER_PUBLIC_VARIABLE: server_public.hex(), CLIENT_SECRET_VARIABLE: secret.hex()}
    server = serve(contexts, security, of_server)
    ask(server, dial(contexts, server, security, of_client))
    with pytest.raises(SettingsError, match=SERVER_SECRET_VARIABLE):
        serve(contexts, security, of_client)
    stranger = dial(contexts, server, security, of_client | {CLIENT_SECRET_VARIABLE: new_key_pair()[1].hex()}, name="stranger")
    assert_refused(server, stranger, "unknown_key")


def test_an_unencrypted_client_reconnects_after_failed_handshakes(contexts: ExitStack, keys: Path) -> None:
    """libzmq gives up a connection after several failed handshakes; our client connects again by itself."""
    server = serve(contexts, with_keys(keys))
    endpoint = server.router.endpoint
    dealer = dial(contexts, server, None)
    assert_refused(server, dealer, *NO_COMMON_MECHANISM)
    server.router.close()
    context = contexts.enter_context(Context())

    def bound() -> Server | None:
        try:
            return context.server(endpoint, Limits(max_frame_bytes=MEBIBYTE))
        except AddressInUse:  # libzmq closes in the background
            time.sleep(0.01)
            return None

    deadline = time.monotonic() + DEADLINE_SECONDS
    while (router := bound()) is None:
        assert time.monotonic() < deadline
    with router:
        ask(Serving(context, router), dealer)


def test_unknown_clients_are_logged_once_a_minute_with_instructions(
    contexts: ExitStack, keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_keys(tmp_path / "stranger")
    (tmp_path / "stranger" / "server.public").write_text((keys / "server.public").read_text())
    server = serve(contexts, with_keys(keys))
    dealer = dial(contexts, server, with_keys(tmp_path / "stranger"))
    with caplog.at_level(logging.DEBUG), capture_logs() as logged:
        assert_refused(server, dealer, "unknown_key", times=3)
    public = (tmp_path / "stranger" / "client-default.public").read_text().strip()
    lines = [line["event"] for line in logged]
    (refused,) = [line for line in lines if line.startswith("refused")]
    assert "from 127.0.0.1" in refused
    assert public[:16] in refused
    assert len([line for line in lines if "does not know this client's key" in line]) == 1
    for folder in (keys, tmp_path / "stranger"):
        for file in folder.glob("*.secret"):
            assert file.read_text().strip() not in caplog.text + str(logged)


def test_a_context_can_be_destroyed_with_open_sockets(keys: Path) -> None:
    context = Context(with_keys(keys))
    routers = [context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=0)) for _ in range(2)]
    dealer = context.client(routers[0].endpoint, "peer", Limits(max_frame_bytes=0))
    context.destroy()
    context.destroy()
    for closed in (*routers, dealer):
        closed.close()


def test_a_missing_key_is_a_settings_error(contexts: ExitStack, keys: Path) -> None:
    (keys / "server.secret").unlink()
    with pytest.raises(SettingsError, match=r"server\.secret"):
        serve(contexts, with_keys(keys))
    (keys / "client-default.secret").unlink()
    context = contexts.enter_context(Context(with_keys(keys)))
    with pytest.raises(SettingsError, match=r"client-default\.secret"):
        context.client("tcp://127.0.0.1:1", "peer", Limits(max_frame_bytes=0))


def as_zeromq_writes(public: bytes) -> str:
    return z85.encode(public).decode()


def test_a_key_rewritten_in_place_takes_effect_within_a_second(keys: Path) -> None:
    clock = Clock()
    old = bytes.fromhex((keys / "client-default.public").read_text())
    clients = AuthorisedClients({old: "client-default"}, keys, LimitedWarnings(get_logger()), clock)
    clients.refresh()
    new, _ = new_key_pair()
    folder_time = keys.stat()
    (keys / "client-default.public").write_text(new.hex())
    assert keys.stat().st_mtime_ns == folder_time.st_mtime_ns  # the folder's own time does not change
    clients.refresh()
    clock.now += 1.0
    clients.refresh()
    assert (clients.admits(as_zeromq_writes(old)), clients.admits(as_zeromq_writes(new))) == (False, True)


def test_a_damaged_key_refuses_its_client_and_a_lost_folder_none(keys: Path) -> None:
    clock = Clock()
    make_keys(keys, client="other")
    public = {name: bytes.fromhex((keys / f"client-{name}.public").read_text()) for name in ("default", "other")}
    clients = AuthorisedClients({key: name for name, key in public.items()}, keys, LimitedWarnings(get_logger()), clock)
    (keys / "client-default.public").write_text("torn")
    with capture_logs() as lines:
        clients.refresh()
        assert [clients.admits(as_zeromq_writes(public[name])) for name in ("default", "other")] == [False, True]
        keys.rename(keys.with_name("moved"))
        clock.now += 10.0
        clients.refresh()
    assert [clients.admits(as_zeromq_writes(public[name])) for name in ("default", "other")] == [False, True]
    damaged, lost = (line["event"] for line in lines)
    assert "client-default.public: not a key" in damaged
    assert "accepted clients keep their access" in lost


def test_refusals_are_all_counted_and_logged_once_a_minute() -> None:
    clock = Clock()
    refusals = Refusals(LimitedWarnings(get_logger(), clock=clock))
    with capture_logs() as lines:
        for _ in range(5):
            refusals.add("mechanism", "no keys")
        refusals.add("incomplete")
        clock.now += 60.0
        refusals.add("mechanism", "no keys")
    assert (refusals.count("mechanism"), refusals.count("incomplete"), refusals.count("revoked")) == (6, 1, 0)
    assert [(line["event"], line.get("suppressed")) for line in lines] == [("no keys", None), ("no keys", 4)]


@pytest.mark.parametrize("encrypted", [True, False])
def test_clients_without_key_or_token_have_a_low_unread_limit(contexts: ExitStack, keys: Path, encrypted: bool) -> None:
    """Frames may be long, but an unauthenticated client never completes one: it is cut off after kilobytes."""
    security, environ = (with_keys(keys), {}) if encrypted else (None, token("secret"))
    server = serve(contexts, security, environ)
    port = int(server.router.endpoint.rpartition(":")[2])
    honest = dial(contexts, server, security, environ)
    until(lambda: honest.send([b"hello"]), server, honest)
    stranger = contexts.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + (b"CURVE" if encrypted else b"PLAIN").ljust(20, b"\0") + bytes(32)
    command_of_a_mebibyte = b"\x06" + (MEBIBYTE).to_bytes(8, "big")
    stranger.sendall(greeting + command_of_a_mebibyte + bytes(GREETING_BYTES + 1000))
    until(lambda: server.router.connections.num_cut["unread"] == 1, server, honest)
    # An authenticated client may have as much in flight as a message needs.
    until(lambda: honest.send([bytes(MEBIBYTE)] * 2), server, honest)
    until(lambda: server.router.bytes_in >= 2 * MEBIBYTE, server, honest)
    assert server.router.connections.num_cut["unread"] == 1


def test_a_public_key_of_other_servers_is_noticed_before_anything_starts(keys: Path, tmp_path: Path) -> None:
    check_server_key(with_keys(keys), {})
    make_keys(tmp_path / "other")
    other = (tmp_path / "other" / "server.public").read_text()
    (keys / "server.public").write_text(other)
    with pytest.raises(SettingsError, match=r"server\.public: is the public key of other servers, not of server\.secret here"):
        check_server_key(with_keys(keys), {})
    text = {file.name: file.read_text().strip() for file in keys.iterdir()}
    environ = {
        SERVER_PUBLIC_VARIABLE: other,
        SERVER_SECRET_VARIABLE: text["server.secret"],
        CLIENT_SECRET_VARIABLE: text["client-default.secret"],
        CLIENT_PUBLIC_VARIABLE: text["client-default.public"],
    }
    with pytest.raises(SettingsError, match=SERVER_PUBLIC_VARIABLE):
        check_server_key(SecuritySettings(curve_keys_from_environment=True), environ)


def test_a_client_with_the_token_is_admitted(contexts: ExitStack) -> None:
    server = serve(contexts, None, token("secret"))
    ask(server, dial(contexts, server, None, token("secret")))
    assert server.count("unknown_key") == server.count("mechanism") == 0


@pytest.mark.parametrize(
    ("servers", "clients", "reasons"),
    [("secret", "guess", ("unknown_key",)), ("secret", None, NO_COMMON_MECHANISM), (None, "secret", NO_COMMON_MECHANISM)],
)
def test_clients_with_another_token_or_mechanism_are_refused(
    contexts: ExitStack, caplog: pytest.LogCaptureFixture, servers: str | None, clients: str | None, reasons: tuple[str, ...]
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(contexts, None, token(servers))
    with capture_logs() as logged:
        dealer = dial(contexts, server, None, token(clients))
        assert_refused(server, dealer, *reasons, times=1)
        until(lambda: dealer.trouble is not None, server, dealer)
    assert any("token" in line["event"] for line in logged)
    assert "secret" not in caplog.text + str(logged)
    assert "guess" not in caplog.text + str(logged)


# -- names and roles of keys


def test_a_server_knows_the_key_behind_each_message(contexts: ExitStack, keys: Path) -> None:
    for name in ("learner", "actor-1"):
        make_keys(keys, client=name)
    server = serve(contexts, with_keys(keys))
    dealers = {name: dial(contexts, server, with_keys(keys, name), name=name) for name in ("learner", "actor-1", "default")}
    for _ in range(2):
        for name, dealer in dealers.items():
            peer = ask(server, dealer)
            assert (peer.name, peer.holder) == (name.encode(), f"client-{name}")


def test_keys_in_environment_variables_may_have_names() -> None:
    texts = {"actor-1": "aa" * 32, "learner": "bb" * 32}
    listed = ",".join([*(f"{name}={text}" for name, text in texts.items()), "cc" * 32])
    security = SecuritySettings(curve_keys_from_environment=True)
    keys = load_server_keys(security, {SERVER_SECRET_VARIABLE: "dd" * 32, CLIENT_PUBLIC_VARIABLE: listed})
    assert keys is not None
    assert {key.hex()[:2]: role_of(name) for key, name in keys.clients.items()} == {"aa": "actor", "bb": "learner", "cc": None}
