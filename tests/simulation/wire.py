"""The network: connections that are first-in-first-out, break, go silent and return. It carries what `herd.transport` carries."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from herd.transport import Frame, Limits, Peer

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

TO_SERVER, TO_CLIENT = 0, 1
KERNEL_MESSAGES = 4
"""Messages on their way in addition to those in a socket's queue."""


class Connection:
    def __init__(self, client: Client, server: Server, number: int) -> None:
        self.client, self.server, self.number = client, server, number
        self.is_silent = False
        """Whether messages vanish, and neither side knows."""
        self.lost_after = [math.inf, math.inf]
        self.newest = [0.0, 0.0]
        self.in_flight = [0, 0]
        self.late_by = 0.0
        """Seconds by which messages to the server that were on their way at the end of the connection are late."""
        self.breaks_after: int | None = None
        """Messages until it breaks."""


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.delay_seconds = world.plan.delay_seconds
        self.servers: dict[str, Server] = {}
        self.connections: list[Connection] = []
        self.cut_off: dict[Process, float] = {}
        """Until when a process can be reached by nobody."""
        self.flaky_until = 0.0
        """Until when new connections break after a few messages."""
        self.on_next_message: dict[Process, Callable[[], None]] = {}
        """What happens when a process has sent its next message to a client."""
        self._num_connections = 0

    def connect(self, client: Client) -> None:
        world, server = self.world, self.servers.get(client.address)
        if client.is_closed or client.connection is not None:
            return
        is_cut = any(self.cut_off.get(process, 0.0) > world.now for process in (client.process, server and server.process) if process)
        if server is None or is_cut:
            world.at(world.now + world.random.uniform(0.2, 1.0), lambda: self.connect(client))
            return
        self._num_connections += 1
        client.connection = Connection(client, server, self._num_connections)
        client.num_connections += 1
        if self.flaky_until > world.now:
            client.connection.breaks_after = world.random.randint(2, 8)
        self.connections.append(client.connection)
        world.wake(client.process)

    def carry(self, connection: Connection, way: int, frames: Sequence[Frame], limit: int) -> bool:
        if connection.in_flight[way] >= limit + KERNEL_MESSAGES:
            return False
        connection.in_flight[way] += 1
        world, copied = self.world, [memoryview(bytes(frame)) for frame in frames]
        arrives = max(world.now + world.random.expovariate(1.0 / self.delay_seconds), connection.newest[way])
        connection.newest[way] = arrives
        world.note("send", connection.number, way, *map(len, copied))
        if way == TO_CLIENT and (react := self.on_next_message.pop(connection.server.process, None)) is not None:
            react()
        if not connection.is_silent:
            world.at(arrives, lambda: self._arrive(connection, way, copied))
        if connection.breaks_after is not None:
            connection.breaks_after -= 1
            if connection.breaks_after == 0:
                when = world.now + world.random.choice([0.5, 1.0, 2.0]) * (arrives - world.now)
                world.at(when, lambda: self.break_(connection, world.random.choice([0.0, 1.0, 4.0])))
        return True

    def _arrive(self, connection: Connection, way: int, frames: list[memoryview]) -> None:
        connection.in_flight[way] -= 1
        if self.world.now > connection.lost_after[way] or connection.is_silent:
            return
        if way == TO_SERVER and connection.late_by > 0.0:
            self.world.at(self.world.now + connection.late_by, lambda: self._deliver(connection, way, frames))
        else:
            self._deliver(connection, way, frames)

    def _deliver(self, connection: Connection, way: int, frames: list[memoryview]) -> None:
        world = self.world
        if way == TO_CLIENT:
            if not connection.client.is_closed:
                connection.client.inbox.append(frames)
                world.wake(connection.client.process)
            return
        server, peer = connection.server, Peer(connection.client.name)
        if server.is_closed:
            return
        known = server.routes.get(peer)
        if known is None or known.number <= connection.number:
            server.routes[peer] = connection
        else:
            world.sometimes("a message of a broken connection arrived after one of the next")
        server.inbox.append((peer, frames))
        world.wake(server.process)

    def break_(self, connection: Connection, straggling_seconds: float = 0.0) -> None:
        """End a connection: the newest messages are lost; older ones to the server may still arrive, even after those of the next one."""
        if connection not in self.connections:
            return
        world = self.world
        self.connections.remove(connection)
        connection.lost_after = [min(connection.lost_after[TO_SERVER], world.now + straggling_seconds), world.now]
        connection.late_by = world.random.uniform(0.0, straggling_seconds)
        connection.server.departed.append(Peer(connection.client.name))
        client = connection.client
        if client.connection is connection:
            client.connection = None
            world.at(world.now + world.random.uniform(0.02, 0.2), lambda: self.connect(client))

    def drop(self, process: Process) -> None:
        """Break all connections of a process, which ends."""
        for connection in [each for each in self.connections if process in (each.client.process, each.server.process)]:
            if connection.client.process is process:
                connection.client.is_closed = True
            self.break_(connection, self.world.random.choice([0.0, 1.0]))
        for address, server in list(self.servers.items()):
            if server.process is process:
                server.is_closed = True
                del self.servers[address]


class Socket:
    def __init__(self, process: Process, limits: Limits) -> None:
        self.process, self._limit = process, limits.high_water_mark
        self.network = process.world.network
        self.is_closed = False
        self.bytes_in = self.bytes_out = 0
        self.inbox: deque[Any] = deque()

    @property
    def waitable(self) -> int:
        return id(self) % 2**31  # for a poller that is never asked

    def receive(self) -> Any:
        return self.inbox.popleft() if self.inbox else None

    def close(self, _linger_seconds: float = 0.0) -> None:
        self.is_closed = True


class Server(Socket):
    def __init__(self, process: Process, address: str, limits: Limits) -> None:
        super().__init__(process, limits)
        self.endpoint = address
        self.routes: dict[Peer, Connection] = {}
        self.departed: list[Peer] = []
        assert address not in self.network.servers, f"two servers listen at {address}"
        self.network.servers[address] = self

    def send(self, peer: Peer, frames: Sequence[Frame]) -> bool:
        connection = self.routes.get(peer)
        if connection is None or connection not in self.network.connections:
            return False
        return self.network.carry(connection, TO_CLIENT, frames, self._limit)

    def trust(self, peer: Peer) -> None: ...

    def departures(self) -> list[Peer]:
        departed, self.departed = self.departed, []
        return departed


class Client(Socket):
    def __init__(self, process: Process, address: str, name: str, limits: Limits) -> None:
        super().__init__(process, limits)
        self.address, self.name = address, name.encode()
        self.connection: Connection | None = None
        self.num_connections = 0
        self.trouble = None
        world = process.world
        world.at(world.now + world.random.uniform(0.0, 0.05), lambda: self.network.connect(self))

    @property
    def connected(self) -> bool:
        return self.connection is not None

    def send(self, frames: Sequence[Frame]) -> bool:
        return self.connection is not None and not self.is_closed and self.network.carry(self.connection, TO_SERVER, frames, self._limit)

    def wait(self, _timeout_seconds: float) -> bool:
        return bool(self.inbox)

    def close(self, linger_seconds: float = 0.0) -> None:
        self.is_closed = True
        if self.connection is not None:
            self.network.break_(self.connection, linger_seconds)


class Context:
    """Stands in for `herd.transport.context.Context`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def server(self, address: str, limits: Limits) -> Any:
        return Server(self._process, address, limits)

    def client(self, address: str, name: str, limits: Limits) -> Any:
        return Client(self._process, address, name, limits)
