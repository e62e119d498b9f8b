"""A TCP proxy on loopback for one link between two processes, which can be cut, stalled, slowed or moved.

Its sockets belong to an event loop in its own thread; every method returns when it is done. Memory is bounded to a few times
``BUFFER_BYTES`` per connection and direction, because a direction is read only as fast as it can be forwarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Coroutine

HOST = "127.0.0.1"
BUFFER_BYTES = 65_536
CONNECT_SECONDS = 2.0
"""Connect timeout: on loopback a connection succeeds or fails at once. A stopped process's backlog also accepts until it is full."""
SLOW_TICK_SECONDS = 0.02
"""A slow link forwards its bytes in portions of this duration instead of one burst per second."""

Mode = Literal["pass", "cut", "stall", "deaf", "slow"]


class Proxy:
    """Forwards ``address`` to a backend port of this machine. Every method may be called from any thread.

    If the backend does not listen, the client's connection is closed, as behind a service without endpoints.
    """

    def __init__(self, backend_port: int) -> None:
        """Listen on a free port."""
        self.bytes_forwarded = 0
        """Bytes in both directions since the start."""
        self.port = 0
        self._backend_port = backend_port
        self._mode: Mode = "pass"
        self._bytes_per_second = 0.0
        self._free_at = 0.0
        """When a slow link has forwarded everything that it received."""
        self._generation = 0
        """Number of the generation of connections: those from before a cut or a move must not survive it."""
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._set("pass"))

    @property
    def address(self) -> str:
        """The address in the form of a setting."""
        return f"tcp://{HOST}:{self.port}"

    def forward(self) -> None:
        """Forward everything at full speed: the fault is over."""
        self._do(self._set("pass"))

    def cut(self) -> None:
        """Reset every connection and refuse new ones, like a broken path with a firewall that answers."""
        self._do(self._set("cut", end_all=True))

    def stall(self) -> None:
        """Keep connections open, accept new ones, and forward nothing, like a network that drops everything."""
        self._do(self._set("stall"))

    def deafen(self) -> None:
        """Forward what clients send, and hold back all answers."""
        self._do(self._set("deaf"))

    def reset(self) -> None:
        """End every connection with the data under way, and forward everything from then on."""
        self._do(self._set("pass", end_all=True))

    def slow(self, bytes_per_second: float) -> None:
        """Forward at most this many bytes per second, in both directions of all connections together."""
        self._bytes_per_second = bytes_per_second
        self._do(self._set("slow"))

    def move(self, backend_port: int) -> None:
        """Forward to another port from now on; connections to the old one are reset."""
        self._backend_port = backend_port
        self._do(self._set(self._mode, end_all=True))

    def close(self) -> None:
        """Close everything and end the thread."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    # -- everything below runs in the proxy's thread

    async def _set(self, mode: Mode, *, end_all: bool = False) -> None:
        self._mode, self._free_at = mode, self._loop.time()
        if end_all:
            self._generation += 1
            for writer in self._writers:
                _reset(writer)
        if mode == "cut" and self._server is not None:
            self._server.close()
            self._server = None
        elif mode != "cut" and self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, limit=BUFFER_BYTES)
            self.port = self._server.sockets[0].getsockname()[1]
        self._changed.set()
        self._changed = asyncio.Event()

    async def _end(self) -> None:
        await self._set("cut", end_all=True)
        for task in self._tasks:
            assert task is not None
            task.cancel()
        await asyncio.gather(*filter(None, self._tasks), return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        generation, task, writers = self._generation, asyncio.current_task(), {to_client}
        self._tasks.add(task)
        self._writers |= writers
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                server, to_server = await asyncio.open_connection(HOST, self._backend_port, limit=BUFFER_BYTES)
            writers.add(to_server)
            self._writers |= writers
            if generation != self._generation:
                return
            pipes = [asyncio.create_task(self._pipe(*way)) for way in ((client, to_server, False), (server, to_client, True))]
            try:
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pipe in pipes:
                    pipe.cancel()
            for writer in writers:
                writer.close()
            for writer in writers:
                await writer.wait_closed()  # data read before the end is still forwarded
        except (OSError, TimeoutError):
            pass  # nothing listens, or the connection broke
        finally:
            for writer in writers:
                _reset(writer)  # no effect on a closed connection
            self._writers -= writers
            self._tasks.discard(task)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_answer: bool) -> None:
        """Forward one direction until the stream ends or breaks; a stalled link does not forward the end either."""
        sink.transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError):
            while data := memoryview(await source.read(BUFFER_BYTES)):
                while data:
                    portion = await self._allowance(len(data), is_answer=is_answer)
                    sink.write(data[:portion])
                    await sink.drain()
                    self.bytes_forwarded += portion
                    data = data[portion:]
        await self._allowance(0, is_answer=is_answer)

    async def _allowance(self, size: int, *, is_answer: bool) -> int:
        """Wait until something may be forwarded; return how many of ``size`` bytes."""
        while True:
            changed = self._changed
            if self._mode == "stall" or (self._mode == "deaf" and is_answer):
                await changed.wait()
            elif self._mode != "slow":
                return size
            else:
                portion = min(size, max(1, int(self._bytes_per_second * SLOW_TICK_SECONDS)))
                self._free_at = max(self._free_at, self._loop.time()) + portion / self._bytes_per_second
                try:
                    await asyncio.wait_for(changed.wait(), self._free_at - self._loop.time())
                except TimeoutError:
                    return portion


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, so that the other side notices at once and the port is free."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
