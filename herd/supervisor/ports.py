"""TCP ports of the run's own processes: free ones where 0 is asked for, a clear refusal where a fixed one is taken."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from herd.config.addresses import accept_both_versions, interface, local_host, tcp_address, with_port

if TYPE_CHECKING:
    from collections.abc import Mapping


class PortError(ValueError):
    """A port or interface that cannot be bound; one line that names the setting."""


def choose_ports(wanted: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Ports to use, by setting.

    All are bound here at the same time and let go at the end, so they differ from each other; another program could take one
    before the child binds it, and the child then says so with exit code 2.

    Args:
        wanted: setting's dotted key -> (interface, port or 0).

    Raises:
        PortError: a fixed port is in use, or an interface is not this machine's.

    """
    with ExitStack() as held:
        return {key: _bind(held, key, host, port) for key, (host, port) in wanted.items()}


def local_address(host: str, port: int) -> str:
    """Where a process of this machine reaches a socket bound to ``host``."""
    return tcp_address(local_host(host), port)


def _bind(held: ExitStack, key: str, host: str, port: int) -> int:
    try:
        family, address = interface(host)
        probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
        # As ZeroMQ does: a port whose last connections linger in TIME_WAIT is free, one that somebody listens on is not.
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
