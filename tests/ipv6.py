"""Marks tests that need ``::1``."""

from __future__ import annotations

import socket

import pytest


def _has_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_loopback(), reason="this machine has no ::1")
