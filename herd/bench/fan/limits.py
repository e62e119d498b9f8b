"""Open files: the first thing that thousands of connections run out of."""

from __future__ import annotations

import math
import resource

from herd.wire.connections import MAX_CONNECTIONS, SPARE_DESCRIPTORS

DESCRIPTORS_PER_CLIENT = 4
"""Of a simulated actor: its connection, and one each for ZeroMQ's socket, its monitor, and the end that reads the monitor."""
OTHER_DESCRIPTORS = 256
"""Of a client process: contexts (a dozen each), pipes, files."""
CLIENTS_PER_CONTEXT = 250
"""A ZeroMQ context has 1,023 sockets, and a client takes three."""


class LimitError(ValueError):
    """This machine's limits are too low; one line that says what to do."""


def raise_limit() -> int:
    """Allow this process, and those it starts, as many open files as it may have; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # More than anybody needs, where there is no limit.
    return MAX_CONNECTIONS * DESCRIPTORS_PER_CLIENT * 2 if hard == resource.RLIM_INFINITY else hard


def check_servers(num_clients: int, limit: int, *, option: str) -> None:
    """Check that one server can hold ``num_clients`` connections, as it counts them itself.

    Raises:
        LimitError: it would turn some of them away.

    """
    if num_clients > MAX_CONNECTIONS:
        raise LimitError(f"{option}: one process accepts {MAX_CONNECTIONS:,} connections at most, not {num_clients:,}")
    needed = num_clients + SPARE_DESCRIPTORS
    if needed > limit:
        raise LimitError(
            f"{option}: {num_clients:,} connections need {needed:,} open files in the process that accepts them; the limit is {limit:,}: "
            f"raise it (ulimit -Hn {needed}, or nofile in /etc/security/limits.conf), or take {max(0, limit - SPARE_DESCRIPTORS):,} at most"
        )


def client_processes(num_clients: int, limit: int, wanted: int | None) -> int:
    """How many processes to spread the clients over: two, or as many as the limit calls for.

    Raises:
        LimitError: ``wanted`` are too few.

    """
    room = (limit - OTHER_DESCRIPTORS) // DESCRIPTORS_PER_CLIENT
    if room < 1:
        raise LimitError(f"a limit of {limit:,} open files leaves no room for clients: raise it (ulimit -Hn)")
    needed = math.ceil(num_clients / room)
    if wanted is None:
        return min(num_clients, max(2, needed))
    if wanted < needed:
        raise LimitError(f"--processes: {num_clients:,} clients need {needed} processes at {limit:,} open files each, not {wanted}")
    return min(wanted, num_clients)


def shares(total: int, parts: int) -> list[int]:
    """``total`` split as evenly as it goes."""
    return [total // parts + (part < total % parts) for part in range(parts)]
