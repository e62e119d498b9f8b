"""Packets are lost, delayed and doubled, and TCP still delivers the bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.soak.faults import CONDITIONS
from benchmarks.soak.network import Conditions

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "--map-root-user", "--net"]
TRANSFER = """
import socket, threading
from benchmarks.soak.network import FAR, NEAR, Conditions, Network

data = bytes(range(256)) * 1024
with Network(1) as network, socket.create_server((NEAR, 0)) as server:
    port = server.getsockname()[1]
    network.become(Conditions(loss=0.05, duplicated=0.05, delay_seconds=(0.0, 0.005)))
    with socket.create_connection((FAR, port)) as client:
        accepted, (host, _) = server.accept()
        sending = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
        sending.start()
        received = b"".join(iter(lambda: accepted.recv(1 << 16), b""))
        sending.join()
    print(received == data, host, network.num_passed > len(data) // 9000, network.num_lost > 0)
"""


def has_devices() -> bool:
    try:
        made = subprocess.run([*NAMESPACE, "ip", "tuntap", "add", "herd0", "mode", "tun"], capture_output=True, check=False, timeout=30)
    except FileNotFoundError:
        return False
    return made.returncode == 0


@pytest.mark.processes
def test_tcp_delivers_over_a_lossy_and_reordering_network() -> None:
    if not has_devices():
        pytest.skip("this machine does not allow network devices in a namespace")
    done = subprocess.run([*NAMESPACE, sys.executable, "-c", TRANSFER], cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.stdout.split() == ["True", "10.99.0.2", "True", "True"], done.stderr


def test_packets_are_lost_duplicated_and_delayed_independently() -> None:
    random = Random(3)
    fates = [Conditions(loss=0.25, duplicated=0.5, delay_seconds=(0.01, 0.02)).fate(random) for _ in range(4000)]
    copies = [len(fate) for fate in fates]
    assert copies.count(0) == pytest.approx(1000, abs=120)
    assert copies.count(2) == pytest.approx(1500, abs=150)
    delays = [seconds for fate in fates for seconds in fate]
    assert 0.01 <= min(delays) < 0.0101
    assert 0.0199 < max(delays) <= 0.02


def test_a_parted_network_drops_all_packets_and_an_ideal_one_none() -> None:
    random = Random(4)
    assert all(CONDITIONS["parted"].fate(random) == () for _ in range(1000))
    assert all(Conditions().fate(random) == [0.0] for _ in range(1000))
