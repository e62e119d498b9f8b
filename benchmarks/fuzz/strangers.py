"""Hostile clients below the level of messages: bytes that are not ZMTP, silent connections, endless messages."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.fuzz.hostile_messages import OTHER_RUN, header, population_bases
from herd.protocols.bandit.messages import ExchangeTemperatures
from herd.protocols.inference.messages import Act
from herd.protocols.replay.messages import SampleEpisode
from herd.protocols.unrolls.messages import CreditRequest
from herd.protocols.weights.messages import GetWeights
from herd.telemetry.scrape import ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.fuzz.processes import CatchRun

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
PATIENCE_SECONDS = 20.0
SCRAPE_SECONDS = 60.0
"""Time for a scrape. Actors have a low priority, so they may wait long for a core of a busy machine; only a hang is a failure."""
MEBIBYTE = 1 << 20
DEAF_SECONDS = 180.0
"""Time for a server to close a connection that does not read: 30 s after the buffers are full."""
COMMANDS = (b"\x09SUBSCRIBE", b"\x06CANCEL", b"\x05ERROR\xff", b"\x05READY", b"\xff", b"")


def connect(port: int) -> socket.socket | None:
    """Return a connection over loopback; None if it is refused."""
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    except OSError:
        return None


def shake_hands(port: int, identity: bytes) -> socket.socket | None:
    """Return a raw connection after ZMTP's handshake; None if the handshake failed."""
    peer = connect(port)
    if peer is None:
        return None
    ready = (
        b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER" + b"\x08Identity" + struct.pack(">I", len(identity)) + identity
    )
    received = b""
    try:
        peer.sendall(GREETING + b"\x04" + bytes([len(ready)]) + ready)
        while b"READY" not in received:
            more = peer.recv(1000)
            if not more:
                raise ConnectionResetError
            received += more
    except OSError:
        peer.close()
        return None
    return peer


def frame(flags: int, body: bytes) -> bytes:
    return bytes([flags, len(body)]) + body if len(body) < 256 else bytes([flags | 2]) + struct.pack(">Q", len(body)) + body


def zmtp_property(name: bytes, value: bytes) -> bytes:
    """Return one property of a READY command."""
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def odd_ready(random: Random) -> bytes:
    """Return a READY command that no client of Herd sends."""
    odd = [
        zmtp_property(b"Socket-Type", random.choice([b"DEALER", b"DEALER", b"ROUTER", b"PUB", b"", random.randbytes(9)])),
        zmtp_property(b"Identity", random.choice([b"", b"\0" + random.randbytes(4), random.randbytes(random.randrange(400)), b"same"])),
        zmtp_property(b"X-Herd-Peer", random.choice([b"", b"\xff\xfe", b"a\0b", b"x" * 5000, b"actor/900/384", random.randbytes(20)])),
        zmtp_property(b"User-Id", b"somebody"),
        zmtp_property(random.randbytes(random.randrange(10)), random.randbytes(random.randrange(30))),
    ]
    random.shuffle(odd)
    body = b"\x05READY" + b"".join(odd[: random.randrange(len(odd) + 1)])
    return frame(4, body[: random.randrange(len(body))] if random.random() < 0.2 else body)


def odd_frames(random: Random) -> bytes:
    """Return frames and commands that follow ZMTP, or nearly."""
    return b"".join(
        random.choice(
            [
                frame(random.randrange(256), random.randbytes(random.randrange(40))),
                frame(4, b"\x04PING" + random.randbytes(random.randrange(40))),
                frame(4, b"\x04PONG" + random.randbytes(random.randrange(40))),
                frame(
                    4, random.choice([b"\x09SUBSCRIBE", b"\x06CANCEL", b"\x05ERROR\xff", b"\x05READY", b"\xff", b""]) + random.randbytes(3)
                ),
                frame(0, random.randbytes(random.randrange(300))),
                frame(1, random.randbytes(random.randrange(300))),
                frame(0, b"") * random.randrange(100),
                b"\x02" + struct.pack(">Q", random.choice([0, 2**63, 2**64 - 1, 1 << 20])),
            ]
        )
        for _ in range(random.randrange(1, 30))
    )


def garbage(random: Random) -> bytes:
    """Return bytes of another protocol, or of broken ZMTP."""
    return random.choice(
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(200),  # TLS
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"*1\r\n$4\r\nPING\r\n",  # Redis
            random.randbytes(random.randrange(1, 500)),
            b"\xff" + random.randbytes(300),
            b"\xff" + bytes(7) + b"\x01\x7f" + bytes([random.randrange(4)]) + random.randbytes(60),  # ZMTP of all versions
            bytes([random.randrange(1, 20), 0]) + random.randbytes(40),  # the first version of ZMTP had no greeting
            GREETING[:-32] + b"\1" + bytes(31) + random.randbytes(100),
            GREETING.replace(b"NULL", b"PLAI") + random.randbytes(20),
            GREETING.replace(b"NULL\0", b"CURVE") + random.randbytes(200),
            GREETING[: random.randrange(1, 64)],
            GREETING + odd_ready(random) + odd_frames(random),
            b"",
        ]
    )


def talk_nonsense(port: int, random: Random, number: int) -> int:
    """Open ``number`` connections one after the other, a few at a time, with garbage on each; return how many were accepted."""
    accepted, held = 0, []
    for _ in range(number):
        peer = connect(port)
        if peer is None:
            continue
        accepted += 1
        held.append(peer)
        with contextlib.suppress(OSError):
            if random.random() < 0.4:
                # Most pass the handshake, because bytes before the server's READY would end it.
                peer.sendall(GREETING + odd_ready(random))
                peer.settimeout(0.05)
                while (answer := peer.recv(1000)) and b"READY" not in answer:
                    pass
                peer.sendall(odd_frames(random))
            else:
                peer.sendall(garbage(random))
        if len(held) > 64:
            leave(held.pop(random.randrange(len(held))), random)
    for peer in held:
        leave(peer, random)
    return accepted


def leave(peer: socket.socket, random: Random) -> None:
    """Close the connection, in order or with a reset."""
    if random.random() < 0.5:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def announce_too_much(port: int, number: int) -> int:
    """Announce a frame of 4 GiB on ``number`` valid connections; return how many the server closed."""
    hung_up = 0
    for turn in range(number):
        peer = shake_hands(port, b"oversized/%d" % turn)
        if peer is None:
            continue
        with peer, contextlib.suppress(ConnectionResetError, BrokenPipeError):
            peer.sendall(b"\x02" + struct.pack(">Q", 2**32) + bytes(1000))
            peer.settimeout(PATIENCE_SECONDS)
            while peer.recv(4096):
                pass
        hung_up += 1
    return hung_up


def never_end(port: int, *, frame_bytes: int, most_bytes: int) -> int:
    """Send one message frame by frame until the server closes the connection; return the bytes that it accepted, at most ``most_bytes``."""
    peer = shake_hands(port, b"endless")
    if peer is None:
        return 0
    frame = (
        b"\x03" + struct.pack(">Q", frame_bytes) + bytes(frame_bytes)
        if frame_bytes > 255
        else b"\x01" + bytes([frame_bytes, *bytes(frame_bytes)])
    )
    block = frame * max(1, 65_536 // len(frame))
    sent = 0
    with peer, contextlib.suppress(OSError):
        peer.settimeout(PATIENCE_SECONDS)
        while sent < most_bytes:
            peer.sendall(block)
            sent += len(block)
    return sent


def flood_blindly(port: int, random: Random, most: int) -> int:
    """Send small messages as fast as possible without reading; return how many were sent until the server closed, at most ``most``."""
    peer = shake_hands(port, b"blind")
    if peer is None:
        return 0
    block = b"".join(b"\0\x20" + random.randbytes(32) for _ in range(1000))
    sent = 0
    with peer, contextlib.suppress(OSError):
        peer.settimeout(PATIENCE_SECONDS)
        while sent < most:
            peer.sendall(block)
            sent += 1000
    return sent


def ask_without_reading(port: int, question: bytes, number: int) -> int:
    """Send requests repeatedly on ``number`` connections without reading answers; return how many the server closed within a bounded
    time."""
    asking = [peer for turn in range(number) if (peer := shake_hands(port, b"deaf/%d" % turn)) is not None]
    hung_up, deadline = 0, time.monotonic() + DEAF_SECONDS
    for peer in asking:
        peer.settimeout(PATIENCE_SECONDS)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # soon full
    while asking and time.monotonic() < deadline:
        time.sleep(0.1)
        for peer in list(asking):
            try:
                peer.sendall(frame(0, question) * 100)  # not more than the server can read, and at least one heartbeat's worth
            except OSError:
                hung_up += 1
                asking.remove(peer)
                peer.close()
    for peer in asking:
        peer.close()
    return hung_up


def hold_half_open(port: int, number: int, seconds: float, meanwhile: Callable[[int], None], first_bytes: bytes = b"") -> int:
    """Hold ``number`` silent connections for ``seconds``; call ``meanwhile`` each second with the number that still lives."""
    held = [peer for _ in range(number) if (peer := connect(port)) is not None]
    until = time.monotonic() + seconds
    if first_bytes:
        for peer in held:
            with contextlib.suppress(OSError):
                peer.sendall(first_bytes)
    try:
        while time.monotonic() < until:
            gone = _hung_up(held)
            meanwhile(len(held) - gone)
            time.sleep(1.0)
        return len(held)
    finally:
        for peer in held:
            peer.close()


def _hung_up(held: list[socket.socket]) -> int:
    poller = select.poll()
    for peer in held:
        poller.register(peer, select.POLLRDHUP | select.POLLHUP)
    return len(poller.poll(0))


def besiege_metrics(port: int, random: Random, number: int) -> tuple[int, list[str]]:
    """Send half-open connections and garbage to an HTTP port; return how many scrapes were tried meanwhile, and why which failed."""
    held, tried, failures = [], 0, list[str]()
    for turn in range(number):
        peer = connect(port)
        if peer is None:
            continue
        held.append(peer)
        with contextlib.suppress(OSError):
            peer.sendall(random.choice([b"", b"GET /metrics HTTP/1.1\r\nX-Slow: ", random.randbytes(300), b"GET " + b"/" * 70_000]))
        if turn % 100 == 99:
            tried += 1
            try:
                scrape(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_SECONDS)
            except ScrapeError as error:
                failures.append(str(error))
    for peer in held:
        peer.close()
    return tried, failures


def question(name: str) -> bytes:
    """Return a short request that this server answers for any client."""
    of_another = {"run": OTHER_RUN, "contract": "c"}
    if name == "learner":
        return header(CreditRequest(wanted_unrolls=1))
    if name == "bandit":
        nothing = {"agent": 0, "client": "1", "purpose": "evaluation", "finished": (), "starting": ()}
        return header(ExchangeTemperatures(id=1, **of_another, **nothing))
    if name == "replay":
        return header(SampleEpisode(id=1, agent=0, **of_another))
    if name == "population":
        (report,) = population_bases("another-run", "c")[0](Random(0))
        return report
    if name == "inference":
        return header(Act(id=1, agent=0, num_environments=1, has_state=False, wants_state=False, **of_another))
    return header(GetWeights(id=1, have=None, **of_another))


def besiege(run: CatchRun, name: str, seed: int, *, nonsense: int, half_open: int, seconds: float, deaf: int) -> dict[str, Any]:
    """Attack one server below the level of messages; return its counters, and whether the honest run continued."""
    server = run[name]
    assert server.port is not None
    random = Random(f"{seed} {name} raw")
    before, updates = server.metrics(), run.updates()
    resident = server.resident_bytes()
    accepted = talk_nonsense(server.port, random, nonsense)
    hung_up = announce_too_much(server.port, 5)
    let_through = {
        "frames of 1 MiB": never_end(server.port, frame_bytes=MEBIBYTE, most_bytes=8 << 30),
        "frames of 1 byte": never_end(server.port, frame_bytes=1, most_bytes=1 << 30),
    }
    blind = flood_blindly(server.port, random, 300_000)
    cut = total(server.metrics(), "herd_wire_connections_cut_total")
    deaf_hung_up = ask_without_reading(server.port, question(name), deaf)
    deaf_hung_up -= int(total(server.metrics(), "herd_wire_connections_cut_total") - cut)  # closed for what they sent
    connections: list[int] = []

    def meanwhile(living: int) -> None:
        connections.append(int(total(server.metrics(), "herd_wire_connections")))
        survivors.append(living)

    survivors: list[int] = []
    held = hold_half_open(server.port, half_open, seconds, meanwhile)
    after = server.metrics()

    def grown(metric: str, **labels: str) -> int:
        return int(total(after, metric, **labels) - total(before, metric, **labels))

    return {
        "nonsense_connections": accepted,
        "oversized_frames_hung_up_on": hung_up,
        "endless_messages_let_through_bytes": let_through,
        "blind_flood_let_through_messages": blind,
        "deaf_connections": deaf,
        "deaf_hung_up_on": deaf_hung_up,
        "half_open_connections": held,
        "half_open_left_at_the_end": survivors[-1] if survivors else 0,
        "most_connections_at_once": max(connections, default=0),
        "handshakes_failed": {
            reason: grown("herd_wire_authentication_failures_total", reason=reason) for reason in ("incomplete", "protocol", "mechanism")
        },
        "connections_cut": {cause: grown("herd_wire_connections_cut_total", cause=cause) for cause in ("too_many", "unread")},
        "malformed_out_of_garbage": grown("herd_wire_malformed_messages_total"),
        "learner_updates": int(run.updates() - updates),
        "resident_before_bytes": resident,
        "resident_peak_bytes": server.peak_resident_bytes(),
        "resident_after_bytes": server.resident_bytes(),
    }
