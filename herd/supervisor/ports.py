"""Chooses TCP ports for the processes of a run: free ports for 0, and a clear error if a fixed port is in use."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from herd.config.addresses import accept_both_versions, interface, local_host, tcp_address, with_port

if TYPE_CHECKING:
    from collections.abc import Mapping


class PortError(ValueError):
    """A port or interface cannot be bound; one line that names the setting."""


def choose_ports(wanted: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Return the ports to use, by setting.

    All ports are bound here at the same time and then released, so they are different. If another program takes one before the child
    binds it, the child reports this with exit code 2.

    Args:
        wanted: setting's dotted key -> (interface, port or 0).

    Raises:
        PortError: a fixed port is in use, or an interface does not belong to this machine.

    """
    with ExitStack() as held:
        return {key: _bind(held, key, host, port) for key, (host, port) in wanted.items()}


def local_address(host: str, port: int) -> str:
    """Return the address at which processes of this machine reach a socket that is bound to ``host``."""
    return tcp_address(local_host(host), port)


def _bind(held: ExitStack, key: str, host: str, port: int) -> int:
    try:
        family, address = interface(host)
        probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
        # As in ZeroMQ: a port with connections in TIME_WAIT is free, a port with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        accept_both_versions(probe)
        probe.bind((address, port))
        probe.listen(1)
    except OSError as error:
        section = key.rpartition(".")[0]
        if error.errno == errno.EADDRINUSE:
            raise PortError(f"{key}: port {port} of {host} is in use; choose another, or 0 for any free one") from None
        raise PortError(f"{section}.host: cannot bind {with_port(host, port)}: {error.strerror or error}") from None
    chosen: int = probe.getsockname()[1]
    return chosen
