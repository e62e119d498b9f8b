"""Sockets over IPv4 and IPv6."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from herd.transport import Limits
from herd.transport.context import Context
from tests.ipv6 import needs_ipv6
from tests.patience import patient

pytestmark = needs_ipv6

REACHED = [("*", "127.0.0.1"), ("*", "[::1]"), ("[::]", "127.0.0.1"), ("[::]", "[::1]"), ("[::1]", "[::1]"), ("127.0.0.1", "127.0.0.1")]
NAMES = "::1 only-six\n127.0.0.1 only-four\n::1 both\n127.0.0.1 both\n"


def reach(bound: str, host: str) -> None:
    """Send a message to ``host`` for a server at ``bound``; returns when it has arrived."""
    with (
        Context(environ={}) as context,
        context.server(f"tcp://{bound}:*", Limits(max_frame_bytes=1024)) as router,
        context.client(f"tcp://{host}:{router.endpoint.rpartition(':')[2]}", "peer", Limits(max_frame_bytes=1024)) as dealer,
    ):
        while not dealer.send([b"here"]):
            dealer.wait(0.02)
            dealer.receive()
        while (message := router.receive()) is None:
            pass
        assert message[0].name == b"peer"


@pytest.mark.parametrize(("bound", "host"), REACHED)
def test_a_server_is_reached_over_each_ip_version_it_binds(bound: str, host: str) -> None:
    reach(bound, host)


@pytest.mark.processes
@pytest.mark.parametrize(("bound", "host"), [("[::1]", "only-six"), ("[::1]", "both"), ("127.0.0.1", "both"), ("*", "only-four")])
def test_a_host_name_is_tried_over_both_ip_versions(bound: str, host: str, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("names are made by a mount of its own, which takes root")
    hosts = tmp_path / "hosts"
    hosts.write_text(NAMES)
    code = f"from tests.wire.test_wire_ipv6 import reach; reach({bound!r}, {host!r})"
    command = f'mount --bind {hosts} /etc/hosts && exec {sys.executable} -c "$CODE"'
    environ = os.environ | {"CODE": code}
    subprocess.run(["unshare", "--mount", "sh", "-c", command], check=True, timeout=patient(60), env=environ, cwd=Path(__file__).parents[2])
