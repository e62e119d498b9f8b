"""A network that loses, delays and reorders real packets, as ``tc netem`` does, but without kernel support.

This process has a TUN device. Packets from ``NEAR`` to ``FAR`` arrive here, and are sent back with both addresses swapped, so the kernel
sees them as sent from ``FAR`` to ``NEAR``. A client that connects to ``FAR`` therefore reaches the server on ``NEAR``. Its packets pass
through here in both directions, while TCP at either end behaves as over a cable. Checksums stay valid, because they are sums over both
addresses.

This requires the right to create network devices. Every user has it in a network namespace: ``unshare -rn python -m benchmarks.soak ...``.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NEAR, FAR = "10.99.0.1", "10.99.0.2"
"""Address on which servers listen, and address to which clients connect."""
MTU_BYTES = 9000
"""Jumbo frames: an unroll of Catch takes seven packets, so that one interpreter moves 50 MB/s."""
MAX_WAITING = 20_000
"""Maximum number of packets under way; further ones are lost, as in a router with a full queue."""

_DEVICE = "herd0"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions for each packet, independently."""

    loss: float = 0.0
    """Probability."""
    duplicated: float = 0.0
    """Probability."""
    delay_seconds: tuple[float, float] = (0.0, 0.0)
    """Drawn uniformly between these two, so that packets overtake each other."""

    def fate(self, random: Random) -> Sequence[float]:
        """Return the delays in seconds of each copy of a packet; none if it is lost."""
        if random.random() < self.loss:
            return ()
        return [random.uniform(*self.delay_seconds) for _ in range(2 if random.random() < self.duplicated else 1)]


USUAL = Conditions(loss=0.002, duplicated=0.001, delay_seconds=(0.0005, 0.002))
"""Conditions between faults, because no network is perfect."""


class NoNetworkError(RuntimeError):
    """This process may not create network devices; the text is one line."""


class Network:
    """The device, and the thread that forwards its packets. Use it as a context manager."""

    def __init__(self, seed: int) -> None:
        """Create the device.

        Raises:
            NoNetworkError: this is not possible.
        """
        self.num_passed = self.num_lost = 0
        """Number of packets so far."""
        self._conditions = USUAL
        self._random = Random(seed)
        self._waiting: list[tuple[float, int, bytes]] = []
        self._stopping = False
        try:
            self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(self._device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
            for words in (
                ["link", "set", "lo", "up"],
                ["addr", "add", f"{NEAR}/30", "dev", _DEVICE],
                ["link", "set", _DEVICE, "mtu", str(MTU_BYTES), "up"],
            ):
                subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
            raise NoNetworkError(f"no network device can be made ({said}): start this under `unshare -rn`") from error
        self._thread = threading.Thread(target=self._move, name="network", daemon=True)
        self._thread.start()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping = True
        self._thread.join()
        os.close(self._device)

    def address(self, port: int) -> str:
        """Return the address at which clients reach the server that listens on ``port``."""
        return f"tcp://{FAR}:{port}"

    def become(self, conditions: Conditions) -> None:
        """Change the conditions; packets under way are not affected."""
        self._conditions = conditions

    def _move(self) -> None:
        while not self._stopping:
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                self._write(heapq.heappop(self._waiting)[2])
            rest = self._waiting[0][0] - now if self._waiting else 0.1
            ready, _, _ = select.select([self._device], [], [], min(0.1, rest))
            if ready:
                self._read()

    def _read(self) -> None:
        for _ in range(64):
            try:
                packet = os.read(self._device, MTU_BYTES)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4:  # the kernel's own IPv6 announcements
                continue
            packet = b"".join((packet[:12], packet[16:20], packet[12:16], packet[20:]))
            arrivals = self._conditions.fate(self._random) if len(self._waiting) < MAX_WAITING else ()
            self.num_lost += not arrivals
            for seconds in arrivals:
                self.num_passed += 1
                heapq.heappush(self._waiting, (time.monotonic() + seconds, self.num_passed, packet))

    def _write(self, packet: bytes) -> None:
        try:
            os.write(self._device, packet)
        except BlockingIOError:
            self.num_lost += 1
