"""The few endpoints of a Kubernetes API server that Herd uses, over loopback HTTP, with faults to order."""

from __future__ import annotations

import copy
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

from tests.kube.fake_objects import Json

USER = "jane"
_NAMESPACED = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(.+))?$")
_NAMESPACE = re.compile(r"^/api/v1/namespaces(?:/([^/]+))?$")
_EVERYWHERE = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/([a-z]+)$")


@dataclass
class FakeCluster:
    """Everything the server knows."""

    objects: dict[str, list[Json]] = field(default_factory=dict)
    """Resource -> objects of all namespaces."""
    pages: dict[str, Callable[[], str] | str] = field(default_factory=dict)
    """Pod -> its /metrics."""
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Pod -> lines that its container has printed."""
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """(verb, resource) that answer 403."""
    failing: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """(verb, resource) -> statuses to answer before it works."""
    unauthorized: bool = False
    on_delete: Callable[[Json], None] | None = None
    on_list: Callable[[], object] | None = None
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path, query."""

    def find(self, resource: str, name: str, namespace: str = "rl") -> Json | None:
        for item in self.objects.get(resource, []):
            if (item["metadata"]["name"], item["metadata"]["namespace"]) == (name, namespace):
                return item
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeCluster
    timeout = 20

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route("GET")

    def do_PATCH(self) -> None:
        self._route("PATCH")

    def do_POST(self) -> None:
        self._route("POST")

    def do_DELETE(self) -> None:
        self._route("DELETE")

    def _route(self, method: str) -> None:
        address = urlsplit(self.path)
        path = unquote(address.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.cluster.requests.append((method, path, query))
        if self.cluster.unauthorized:
            self._status(401, "Unauthorized", "Unauthorized")
            return
        if match := _NAMESPACE.match(path):
            self._namespace(method, match[1], body)
        elif match := _EVERYWHERE.match(path):
            self._collection(match[1], None, query)
        elif match := _NAMESPACED.match(path):
            self._namespaced(method, *match.groups(), query, body)
        else:
            self._not_found_page()

    def _namespace(self, method: str, name: str | None, body: bytes) -> None:
        known = self.cluster.objects.setdefault("namespaces", [])
        if method == "POST":
            known.append(json.loads(body))
            self._json(known[-1], 201)
        elif found := [item for item in known if item["metadata"]["name"] == name]:
            known.remove(found[0])
            self._json(found[0])
        else:
            self._status(404, "NotFound", f'namespaces "{name}" not found')

    def _namespaced(
        self, method: str, namespace: str, resource: str, name: str | None, below: str | None, query: dict[str, str], body: bytes
    ) -> None:
        verb = {"GET": "get" if name else "list", "PATCH": "patch", "DELETE": "delete"}[method]
        what = f"{resource}/{(below or '').partition('/')[0]}" if below else resource
        if (verb, what) in self.cluster.forbidden:
            self._forbidden(verb, what, namespace)
            return
        if statuses := self.cluster.failing.get((verb, what)):
            self._status(statuses.pop(0), "InternalError", "etcdserver: request timed out")
            return
        if name is None:
            self._collection(resource, namespace, query)
        elif below is not None and below.startswith("proxy/"):
            self._proxy(name)
        else:
            self._single(method, namespace, resource, name, below, query, body)

    def _single(self, method: str, namespace: str, resource: str, name: str, below: str | None, query: dict[str, str], body: bytes) -> None:
        item = self.cluster.find(resource, name, namespace)
        if item is None:
            self._status(404, "NotFound", f'{resource} "{name}" not found')
        elif below == "log":
            self._log(item, query)
        elif below == "scale" and method == "PATCH":
            self._scale(item, body)
        elif method == "DELETE":
            self.cluster.objects[resource].remove(item)
            if self.cluster.on_delete is not None:
                self.cluster.on_delete(item)
            self._json(item)
        else:
            self._json(item)

    def _collection(self, resource: str, namespace: str | None, query: dict[str, str]) -> None:
        if namespace is None and ("list everywhere", resource) in self.cluster.forbidden:
            self._forbidden("list", resource, None)
            return
        if self.cluster.on_list is not None:
            self.cluster.on_list()
        selected = [
            item
            for item in self.cluster.objects.get(resource, [])
            if namespace in {None, item["metadata"].get("namespace")}
            and selects(query.get("labelSelector", ""), item["metadata"].get("labels", {}))
        ]
        start = int(query.get("continue", 0))
        stop = start + int(query.get("limit", len(selected) or 1))
        metadata = {"resourceVersion": "4711"} | ({"continue": str(stop)} if stop < len(selected) else {})
        # As a real one does: the list says what its items are, they do not.
        items = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in selected[start:stop]]
        self._json({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": copy.deepcopy(items)})

    def _scale(self, item: Json, body: bytes) -> None:
        patch = json.loads(body)
        item["spec"]["replicas"] = patch["spec"]["replicas"]
        item["metadata"]["generation"] += 1
        self._json({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": item["metadata"]["name"]}, "spec": patch["spec"]})

    def _proxy(self, name_and_port: str) -> None:
        name, _, port = name_and_port.partition(":")
        page = self.cluster.pages.get(name)
        if page is None or port != "9400":
            self._status(503, "ServiceUnavailable", f"error trying to reach service: dial tcp 10.0.0.7:{port}: connect: connection refused")
            return
        self._send(200, (page if isinstance(page, str) else page()).encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _log(self, item: Json, query: dict[str, str]) -> None:
        name = item["metadata"]["name"]
        lines = self.cluster.logs.get(name)
        if lines is None:
            self._status(400, "BadRequest", f'container in pod "{name}" is waiting to start: ContainerCreating')
            return
        self._send(200, "".join(f"{line}\n" for line in lines[-int(query["tailLines"]) :]).encode(), "text/plain")

    def _forbidden(self, verb: str, resource: str, namespace: str | None) -> None:
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        self._status(403, "Forbidden", f'{resource} is forbidden: User "{USER}" cannot {verb} resource "{resource}" in API group ""{where}')

    def _not_found_page(self) -> None:
        self._send(404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _status(self, code: int, reason: str, message: str) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        self._json(status, code)

    def _json(self, answer: Json, code: int = 200) -> None:
        self._send(code, json.dumps(answer).encode(), "application/json")

    def _send(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is part of the tests."""


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[str]:
    """Serve ``cluster``; gives its address."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def write_kubeconfig(file: Path, address: str, *, namespace: str | None = "rl", user: Json | None = None) -> Path:
    """A kubeconfig with one context, ``fake``."""
    context = {"cluster": "fake", "user": USER} | ({"namespace": namespace} if namespace else {})
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "fake",
                "clusters": [{"name": "fake", "cluster": {"server": address}}],
                "users": [{"name": USER, "user": user if user is not None else {"token": "secret"}}],
                "contexts": [{"name": "fake", "context": context}],
            }
        )
    )
    return file


def selects(selector: str, labels: Json) -> bool:
    """Whether a label selector of ``a=b`` and ``a in (b,c)`` chooses these labels."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        if match := re.fullmatch(r"\s*(\S+) in \(([^)]*)\)", term):
            if labels.get(match[1]) not in match[2].split(","):
                return False
        else:
            key, _, value = term.partition("=")
            if labels.get(key.strip()) != value:
                return False
    return True
