"""The process of one environment: ``python -m herd.components.suites.worker ORDER``, started by `SoloEnvironments` alone.

It receives single-byte commands over a socket, and answers each with the same byte when the shared memory contains the result. When the
process at the other end ends for any reason, the socket is closed, and this process ends after the current call of its environment. If that
call does not return, the process is killed, with those that the game started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from mmap import mmap
from typing import Any

import numpy as np

from herd.components.suites.solo import Player, described, make_solo, rows_type
from herd.components.user_code import FAILURES


def main(order: dict[str, Any]) -> int:
    """Play until the socket is closed; returns 1 if the environment failed. The reason is in the shared memory.

    ``order``: what to play and where, see `SoloEnvironments`.
    """
    # Ctrl-C at the terminal is for the parent process, which then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A child process of the game must not keep the socket open, or the end of this process would go unnoticed.
    for descriptor in (order["control"], order["memory"]):
        os.set_inheritable(descriptor, False)
    rows = np.frombuffer(mmap(order["memory"], 0), rows_type(**order["sizes"]), count=1)
    with socket.socket(fileno=order["control"]) as control:
        threading.Thread(target=_end_with, args=(control.fileno(), order["close_seconds"]), daemon=True).start()
        try:
            environment = make_solo(*order["environment"])
            with closing(Player(environment, rows, order["index"], order["entropy"])) as player:
                while command := _received(control):
                    player.carry_out(command[0])
                    with suppress(ConnectionError):  # the parent did not wait for the answer
                        control.send(command)
        except FAILURES as error:
            rows["complaints"][0, order["index"]] = described(error).encode()
            return 1
    return 0


def _end_with(control: int, close_seconds: float) -> None:
    """Kill this process and its group some time after the other end of the socket was closed. No call of a game may outlive its actor."""
    other_end = select.poll()
    other_end.register(control, select.POLLRDHUP)
    other_end.poll()
    time.sleep(close_seconds)
    os.killpg(0, signal.SIGKILL)


def _received(control: socket.socket) -> bytes:
    try:
        return control.recv(1)
    except ConnectionError:
        return b""


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
