"""TCP ports of a run's processes: free ports for 0, a clear error if a fixed port is in use, and no other program takes one meanwhile."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from herd.config.addresses import accept_both_versions, interface, with_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class PortError(ValueError):
    """A port or interface cannot be bound; one line that names the setting."""


@contextmanager
def held_ports(wanted: Mapping[str, tuple[str, int]]) -> Iterator[dict[str, int]]:
    """Choose ports, and keep them for the children of this process.

    Each port stays bound here, without a listener. Linux then gives it to no other program that asks for any free port, and to no outgoing
    connection. A child binds it with SO_REUSEADDR, as ZeroMQ and torch do, and so can listen to it, and so can the child that replaces it.
    Other kernels refuse the second bind, so there the ports are released. If another program takes one before the child, the child reports
    this with exit code 2.

    Args:
        wanted: name of the port for errors -> (interface, port or 0).

    Yields:
        The port to use, by name; all are different.

    Raises:
        PortError: a fixed port is in use, or an interface does not belong to this machine.

    """
    with ExitStack() as held:
        with ExitStack() as probes:
            ports = {key: _bind(held, probes, key, host, port) for key, (host, port) in wanted.items()}
        yield ports


def _bind(held: ExitStack, probes: ExitStack, key: str, host: str, port: int) -> int:
    try:
        family, address = interface(host)
        probe = _bound(probes, family, address, port)
        chosen: int = probe.getsockname()[1]
        with ExitStack() as beside:
            try:
                _bound(beside, family, address, chosen)
                probe.listen(1)
                held.enter_context(beside.pop_all())
            except OSError:  # not on this kernel, or there is another listener, of another program or another setting
                beside.close()
                probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortError(f"{key}: port {port} of {host} is in use; choose another, or 0 for any free one") from None
        setting = "placement.metrics_host" if "metrics" in key else "placement.host"
        raise PortError(f"{setting}: cannot bind {with_port(host, port)}: {error.strerror or error}") from None
    return chosen


def _bound(kept: ExitStack, family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = kept.enter_context(socket.socket(family, socket.SOCK_STREAM))
    # As in ZeroMQ: a port with connections in TIME_WAIT is free, a port with a listener is not.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    accept_both_versions(made)
    made.bind((address, port))
    return made
