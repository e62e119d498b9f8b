"""Inputs that make libzmq 4.3.5 abort must not be reachable from the network. An abort would end the tests' separate processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patient

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
SERVER = """
import socket, struct, sys, time, zmq
from herd.transport import tcp as sockets
# Servers send no heartbeats, and only the last attack aborts without them. With them the queues alone must protect.
sockets.KEEP_ALIVE = {**sockets.KEEP_ALIVE, zmq.HEARTBEAT_IVL: 200, zmq.HEARTBEAT_TIMEOUT: 30_000}
from herd.transport import Limits
from herd.transport.context import Context, Poller

GREETING = b"\\xff" + bytes(8) + b"\\x7f\\x03\\x01" + b"NULL".ljust(20, b"\\0") + bytes(32)

def frame(flags, body):
    return bytes([flags, len(body)]) + body

def connect(identity):
    peer = socket.create_connection(("127.0.0.1", int(router.endpoint.rpartition(":")[2])))
    ready = b"\\x05READY\\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER\\x08Identity" + struct.pack(">I", len(identity)) + identity
    peer.sendall(GREETING + frame(4, ready))
    received = b""
    while b"READY" not in received:
        received += peer.recv(1000)
    return peer

def hang_up(peer):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()

def look_away(seconds):
    time.sleep(seconds)  # the owner of the socket is busy, and libzmq works alone

def serve(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        Poller(router).poll(0.05)
        while (received := router.receive()) is not None:
            router.send(received[0], [b"answer"])

with Context() as context, context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1 << 20)) as router:
    exec(sys.argv[1])
    serve(1.0)
    with context.client(router.endpoint, "honest", Limits(max_frame_bytes=1 << 20)) as dealer:
        while not dealer.send([b"question"]):
            serve(0.05)
            dealer.receive()
        serve(0.2)
        assert dealer.wait(30)
print("alive")
"""

REPLACED_CONNECTION = """
first = connect(b"same")
first.sendall(frame(0, b"hello"))
serve(0.3)
second = connect(b"same")
second.sendall(frame(0, b"hello"))
serve(0.3)
first.sendall(frame(0, b"late"))  # over the connection that was replaced
serve(0.3)
hang_up(first)
"""
FULL_QUEUE = """
peer = connect(b"flood")
peer.sendall(frame(0, b"x") * 100)
look_away(0.3)
hang_up(peer)
look_away(1.0)
"""
PING_BEHIND_A_FULL_QUEUE = """
peer = connect(b"flood")
peer.sendall(frame(0, b"x") * 40 + frame(4, b"\\x04PING\\0\\0") + frame(0, b"x") * 40)
look_away(0.3)
hang_up(peer)
look_away(0.1)
"""


@pytest.mark.parametrize("attack", [REPLACED_CONNECTION, FULL_QUEUE, PING_BEHIND_A_FULL_QUEUE])
def test_the_server_survives_inputs_that_abort_libzmq(attack: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVER, attack], cwd=ROOT, capture_output=True, text=True, timeout=patient(100), check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
