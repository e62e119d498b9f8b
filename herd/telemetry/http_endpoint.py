"""Serves a few fixed pages over HTTP, for Prometheus and for probes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import NamedTuple, Self
from urllib.parse import parse_qs

from herd.config.addresses import accept_both_versions, interface, with_port
from herd.telemetry.logs import warn_limited

CLIENT_TIMEOUT_SECONDS = 5.0
"""A connection is closed if its client is silent this long, because a thread waits for it."""
MAX_CLIENTS = 256
"""Connections at once, a thread each. When full, the oldest connection is closed, so that idle clients cannot block new ones: a scrape
takes milliseconds."""


class MetricsEndpointError(OSError):
    """The metrics endpoint cannot be bound; the message names host, port and cause. ``errno`` is the cause's."""


class Reply(NamedTuple):
    """The answer of a page."""

    status: int
    body: bytes
    content_type: str

    @classmethod
    def line(cls, status: int, text: str) -> Self:
        """Make an answer with a line of plain text."""
        return cls(status, f"{text}\n".encode(), "text/plain; charset=utf-8")


Page = Callable[[Sequence[str]], Reply]
"""Makes an answer. It gets the values of ``name[]`` in the address, which restrict a page of metrics to these."""
Request = socket.socket | tuple[bytes, socket.socket]
"""As socketserver has it; a stream's is a socket."""


class HttpEndpoint:
    """Serves GET of ``pages`` from daemon threads until ``close()``. ``port`` is the bound port.

    Raises ``MetricsEndpointError`` if the address cannot be bound.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        try:
            self._server = _Server(host, port, pages)
        except OSError as error:
            refused = MetricsEndpointError(
                f"cannot serve metrics on {with_port(host, port)}: {error.strerror or error}; choose another port, or 0"
            )
            refused.errno = error.errno
            raise refused from error
        self.port: int = self._server.server_address[1]
        # close() waits at most 0.1 s for the loop to notice.
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics-endpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Release the port. Answers under way finish in their own threads."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that the kernel keeps until they are accepted; socketserver's 5 fail scrapes as soon as a few come together.
    request_queue_size = MAX_CLIENTS

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self._clients: OrderedDict[int, socket.socket] = OrderedDict()
        self._lock = threading.Lock()
        self.address_family, address = interface(host)
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        accept_both_versions(self.socket)
        # HTTPServer's method looks up the host name, which takes seconds without a name service.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Request, client_address: object) -> None:
        """Answer in a separate thread. If there are too many, close the oldest connection."""
        assert isinstance(request, socket.socket)
        with self._lock:
            if len(self._clients) >= MAX_CLIENTS:
                _, oldest = self._clients.popitem(last=False)
                with contextlib.suppress(OSError):  # it has just been closed by the client
                    oldest.shutdown(socket.SHUT_RDWR)
            self._clients[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        """Close a connection."""
        with self._lock:
            self._clients.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: a client that disconnects during an answer is not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "herd"
    sys_version = ""
    timeout = CLIENT_TIMEOUT_SECONDS

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        page = self.server.pages.get(path)
        if page is None:
            reply = Reply.line(404, "not found; available are " + ", ".join(self.server.pages))
        else:
            try:
                reply = page(parse_qs(query).get("name[]", []))
            except Exception as error:  # a probe or a dashboard must see that the page is broken, and the log must say why
                warn_limited(f"page {path}", "a page cannot be made", page=path, reason=f"{type(error).__name__}: {error}")
                reply = Reply.line(500, f"{path} cannot be made: {type(error).__name__}")
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, *args: object) -> None:
        """Log nothing, because scrapes come every few seconds."""
