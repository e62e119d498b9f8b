"""The process of one environment: ``python -m herd.envs.processes.worker ORDER``, started by `ProcessEnvironments` alone.

It receives single-byte commands over a socket, and answers each with the same byte when the shared memory contains the result. When the
process at the other end ends for any reason, the socket is closed, and this process ends after the current call of its environment.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from mmap import mmap
from typing import TYPE_CHECKING

import numpy as np

from herd.envs.instructions import hash_instruction
from herd.envs.processes.rows import SharedRows, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.envs.processes.solo import Seen, SoloEnvironment

BUFFER, RESET, PREPARE = 1, 2, 4
"""Bits of a command: which of the two buffers to write; return the first row of a new game instead of taking a step; only start that game,
and return nothing yet."""
NUM_SEEDS = 2**31
_hashed = lru_cache(maxsize=1024)(hash_instruction)


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker plays, and where; passed as JSON on its command line."""

    maker: str
    """``module:function``, called with ``settings`` and ``task``; returns a `SoloEnvironment`."""
    settings: str
    """Settings of the suite, as JSON."""
    task: str
    entropy: tuple[int, ...]
    """Random seed of the seeds of its games."""
    environment: int
    """Its index in the memory."""
    sizes: Sizes
    memory: int
    """File descriptor."""
    control: int
    """File descriptor of the socket."""

    def to_json(self) -> str:
        """Return JSON for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Order:
        """Inverse of `to_json`."""
        fields = json.loads(text)
        sizes = Sizes(**fields["sizes"] | {"frame_shape": tuple(fields["sizes"]["frame_shape"])})
        return cls(**fields | {"entropy": tuple(fields["entropy"]), "sizes": sizes})


def main(order: Order) -> int:
    """Play until the socket is closed; returns 1 if the environment failed. The reason is in the shared memory."""
    # Ctrl-C at the terminal is for the parent process, which then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A child process of the game must not keep the socket open, or the end of this process would go unnoticed.
    os.set_inheritable(order.control, False)
    os.set_inheritable(order.memory, False)
    rows = SharedRows(mmap(order.memory, SharedRows.num_bytes(order.sizes)), order.sizes)
    with socket.socket(fileno=order.control) as control:
        try:
            module, _, name = order.maker.partition(":")
            maker: Callable[[str, str], SoloEnvironment] = getattr(import_module(module), name)
            environment = maker(order.settings, order.task)
            try:
                serve(environment, rows, order.environment, np.random.default_rng(order.entropy), control)
            finally:
                environment.close()
        except Exception as error:
            rows.complain(order.environment, f"{type(error).__name__}: {error}")
            return 1
    return 0


def serve(environment: SoloEnvironment, rows: SharedRows, index: int, random: np.random.Generator, control: socket.socket) -> None:
    """Carry out commands until the socket is closed."""
    prepared: Seen | None = None
    with suppress(ConnectionError):  # the parent did not wait for the answer
        while command := control.recv(1):
            buffer = command[0] & BUFFER
            if command[0] & (RESET | PREPARE):
                if prepared is None:
                    prepared = environment.reset(int(random.integers(NUM_SEEDS)))
                if command[0] & RESET:
                    _show(prepared, rows, index, buffer)
                    prepared = None
            else:
                played = environment.step(int(rows.actions[index]))
                _show(played.seen, rows, index, buffer)
                rows.rewards[index] = played.reward
                rows.terminated[index] = played.terminated
                rows.truncated[index] = played.truncated
            control.send(command)


def _show(seen: Seen | None, rows: SharedRows, index: int, buffer: int) -> None:
    if seen is None:
        rows.frames[buffer, index] = rows.frames[1 - buffer, index]
        rows.words[buffer, index] = rows.words[1 - buffer, index]
        return
    rows.frames[buffer, index] = seen.frame.transpose(2, 0, 1)
    if rows.words.size:
        rows.words[buffer, index] = _hashed(seen.instruction)


if __name__ == "__main__":
    sys.exit(main(Order.from_json(sys.argv[1])))
