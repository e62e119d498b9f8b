"""Hosts and addresses of sockets, of both versions of IP: ``tcp://10.0.0.7:7100``, ``tcp://[2001:db8::7]:7100``, ``tcp://learner-0:7100``.

A host by itself is written with or without brackets, and ``*`` means every interface.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Literal
from urllib.parse import urlsplit

BOTH_VERSIONS = frozenset({"*", "", "::"})
"""Every interface, over IPv6 and IPv4."""
ANY_INTERFACE = BOTH_VERSIONS | {"0.0.0.0"}  # noqa: S104  names that mean every interface; nothing is bound by this
LOOPBACK = "127.0.0.1"
ServerName = Literal["paramserver", "bandit", "replay", "population", "inference", "learner"]
"""The services that others connect to."""
ServiceName = Literal[ServerName, "actor", "evaluator"]


def is_storage_address(text: str) -> bool:
    """Whether a word is an address in object storage. It contains no credentials, because settings are written to files and logs."""
    return re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s@]+", text) is not None


def bare(host: str) -> str:
    """Without the brackets that an IPv6 address has in front of a port."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_ipv6(host: str) -> bool:
    """Whether a host is an IPv6 address; a name is not."""
    try:
        return ipaddress.ip_address(bare(host)).version == 6
    except ValueError:
        return False


def is_name(host: str) -> bool:
    """Whether a host has to be looked up."""
    try:
        ipaddress.ip_address(bare(host))
    except ValueError:
        return host not in BOTH_VERSIONS
    return False


def with_port(host: str, port: int | str) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{bare(host)}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def tcp_address(host: str, port: int | str) -> str:
    """Return ZeroMQ's address."""
    return f"tcp://{with_port(host, port)}"


def host_of(address: str) -> str:
    """Return the host of ``tcp://host:port``, without brackets; the port may be ``*``."""
    return bare(address.removeprefix("tcp://").rpartition(":")[0])


def local_host(host: str) -> str:
    """Where processes of this machine reach a socket bound to ``host``."""
    return LOOPBACK if host in ANY_INTERFACE else bare(host)


def interface(host: str) -> tuple[socket.AddressFamily, str]:
    """For ``bind`` of a socket of Python's own: every interface is of both versions where this machine has IPv6.

    Raises:
        OSError: the name cannot be resolved.

    """
    if host in BOTH_VERSIONS:
        return (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")  # noqa: S104
    family, _, _, _, address = socket.getaddrinfo(bare(host), None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, str(address[0])


def accept_both_versions(made: socket.socket) -> None:
    """Before ``bind`` of ``interface``."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)


def checked(address: str) -> str:
    """Return an address of a service; ValueError if it is none."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme == "tcp" and bool(parts.hostname) and bool(parts.port) and not parts.path
    except ValueError:  # brackets or port
        usable = False
    if not usable:
        raise ValueError("should be tcp://HOST:PORT, with an IPv6 address in brackets")
    return address
