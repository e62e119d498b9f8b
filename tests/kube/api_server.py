"""The few answers of a Kubernetes API server that ``herd status --release`` asks for, over loopback HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.kube.objects import Json

_PATH = re.compile(r"/(?:api/v1|apis/apps/v1)/namespaces/([^/]+)/([a-z]+)(?:/([^/:]+:94[0-9]+)/proxy/metrics)?")


@dataclass
class ApiServer:
    """Its state."""

    objects: dict[str, list[Json]]
    """Objects of all namespaces, by resource."""
    pages: dict[str, Callable[[], str] | str] = field(default_factory=dict)
    """Content of /metrics, by pod; of another port than 9400, by ``POD:PORT``."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Status to answer instead, by resource (``pods``, ``pods/proxy``)."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Verb, API group and resource of each request."""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        match = _PATH.fullmatch(path)
        assert match is not None, path
        namespace, resource, pod = match.groups()
        what = "pods/proxy" if pod else resource
        self.requests.append(("get" if pod else "list", "apps" if path.startswith("/apis") else "", what))
        if what in self.statuses:
            message = f'{what} is forbidden: User "jane" cannot do this'
            return self.statuses[what], json.dumps({"kind": "Status", "message": message, "code": self.statuses[what]})
        if pod:
            page = self.pages.get(pod.removesuffix(":9400"))
            return (
                (503, json.dumps({"message": "connection refused"})) if page is None else (200, page if isinstance(page, str) else page())
            )
        items = [
            item
            for item in self.objects.get(resource, [])
            if item["metadata"]["namespace"] == namespace and _selects(query["labelSelector"], item["metadata"]["labels"])
        ]
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        more = {"continue": str(start + limit)} if start + limit < len(items) else {}
        return 200, json.dumps({"kind": "List", "metadata": more, "items": items[start : start + limit]})


@contextmanager
def serving(state: ApiServer) -> Iterator[str]:
    """Serve; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            status, text = state.answer(unquote(address.path), {key: values[0] for key, values in parse_qs(address.query).items()})
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def write_kubeconfig(file: Path, address: str, *, context: str = "fake", namespace: str = "rl") -> Path:
    """Write a kubeconfig with one context."""
    content = {
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": address}}],
        "users": [{"name": "jane", "user": {"token": "secret"}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": "jane", "namespace": namespace}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


def _selects(selector: str, labels: Json) -> bool:
    """Whether a selector of terms ``a=b`` and ``a in (b,c)`` matches."""
    for key, value, values in re.findall(r"([^,=\s(]+)(?:=([^,]+)| in \(([^)]*)\))", selector):
        if labels.get(key) not in (values.split(",") if values else [value]):
            return False
    return True
