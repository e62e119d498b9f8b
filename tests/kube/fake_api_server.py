"""The endpoints of a Kubernetes API server that Herd and Helm use, over loopback HTTP, with faults on demand.

The server records the writer of each field, so that server-side apply has conflicts (field_owners.py). It contains nothing else of a
cluster: fake_controllers.py creates pods from workloads.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.kube.fake_kinds import KINDS, discovery
from tests.kube.fake_objects import CREATED, Json
from tests.kube.fake_pod_table import pod_table
from tests.kube.fake_protobuf import CONTENT_TYPE, read_secret
from tests.kube.field_owners import ApplyConflictError, FieldOwners, Manager

USER = "jane"
_NAMESPACED = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(.+))?$")
_NAMESPACE = re.compile(r"^/api/v1/namespaces(?:/([^/]+))?$")
_EVERYWHERE = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/([a-z]+)$")


@dataclass
class FakeCluster:
    """The state of the server."""

    objects: dict[str, list[Json]] = field(default_factory=dict)
    """Objects of all namespaces, by resource."""
    pages: dict[str, Callable[[], str] | str] = field(default_factory=dict)
    """Content of /metrics, by pod."""
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Lines that a pod's container has printed, by pod."""
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """Pairs (verb, resource) that answer 403."""
    failing: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Statuses to answer before the request succeeds, by (verb, resource)."""
    unauthorized: bool = False
    owners: dict[tuple[str, str, str], FieldOwners] = field(default_factory=dict)
    """Writers of fields, by resource, namespace and name."""
    on_delete: Callable[[Json], None] | None = None
    on_list: Callable[[], object] | None = None
    _writes: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and query of each request."""

    def find(self, resource: str, name: str, namespace: str = "rl") -> Json | None:
        for item in self.objects.get(resource, []):
            if (item["metadata"]["name"], item["metadata"]["namespace"]) == (name, namespace):
                return item
        return None

    def written_by(self, resource: str, item: Json) -> FieldOwners:
        """The writers of an object's fields."""
        key = (resource, item["metadata"].get("namespace", ""), item["metadata"]["name"])
        return self.owners.setdefault(key, FieldOwners())

    @property
    def newest(self) -> int:
        """The version of the newest write."""
        return self._writes

    def put(self, resource: str, item: Json) -> Json:
        """Create or replace an object, with its kind's defaults filled in; returns it."""
        known = self.objects.setdefault(resource, [])
        metadata = item["metadata"]
        old = self.find(resource, metadata["name"], metadata.get("namespace", ""))
        self._writes += 1
        metadata["resourceVersion"] = str(self._writes)
        metadata.setdefault("uid", f"uid-{self._writes}")
        metadata.setdefault("creationTimestamp", CREATED)
        if resource == "deployments":
            item["spec"].setdefault("replicas", 1)
        changed = old is None or old.get("spec") != item.get("spec")
        metadata["generation"] = (old["metadata"].get("generation", 0) if old else 0) + int(changed)
        item.setdefault("status", {})
        metadata["managedFields"] = self.written_by(resource, item).managed_fields(KINDS[resource].api_version)
        if old is None:
            known.append(item)
        else:
            known[known.index(old)] = item
        return item


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeCluster
    timeout = 20

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route("GET")

    def do_PUT(self) -> None:
        self._route("PUT")

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
        if answer := discovery(path):
            self._json(answer)
        elif match := _NAMESPACE.match(path):
            self._namespace(method, match[1], body)
        elif match := _EVERYWHERE.match(path):
            self._collection(match[1], None, query)
        elif match := _NAMESPACED.match(path):
            namespace, resource, name, below = match.groups()
            self._namespaced(method, namespace, resource, name, below, query, body)
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
        verb = {"GET": "get" if name else "list", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
        what = f"{resource}/{(below or '').partition('/')[0]}" if below else resource
        if (verb, what) in self.cluster.forbidden:
            self._forbidden(verb, what, namespace)
            return
        if statuses := self.cluster.failing.get((verb, what)):
            self._status(statuses.pop(0), "InternalError", "etcdserver: request timed out")
            return
        if method == "POST":
            self._create(resource, namespace, self._given(body), query)
        elif name is None and query.get("watch"):
            self._watch(resource, namespace, query)
        elif name is None:
            self._collection(resource, namespace, query)
        elif below is not None and below.startswith("proxy/"):
            self._proxy(name)
        else:
            self._single(method, namespace, resource, name, below, query, body)

    def _single(self, method: str, namespace: str, resource: str, name: str, below: str | None, query: dict[str, str], body: bytes) -> None:
        item = self.cluster.find(resource, name, namespace)
        if method == "PATCH" and self.headers["Content-Type"] == "application/apply-patch+yaml":
            self._apply(resource, item, yaml.safe_load(body), query)
        elif item is None:
            self._status(404, "NotFound", f'{resource} "{name}" not found')
        elif below == "log":
            self._log(item, query)
        elif below == "scale" and method == "PATCH":
            self._scale(item, body, query)
        elif method in {"PUT", "PATCH"}:
            given = self._given(body)
            given.setdefault("metadata", {})["namespace"] = namespace
            self._update(resource, item, given if method == "PUT" else merged(item, given), self._manager(query))
        elif method == "DELETE":
            self.cluster.objects[resource].remove(item)
            self.cluster.owners.pop((resource, namespace, name), None)
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
        selected = self._selected(resource, namespace, query)
        start = int(query.get("continue", 0))
        stop = start + int(query.get("limit", len(selected) or 1))
        metadata = {"resourceVersion": str(self.cluster.newest)} | ({"continue": str(stop)} if stop < len(selected) else {})
        # As on a real server, the list names the kind of its items, and the items do not.
        items = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in selected[start:stop]]
        if "as=Table" in self.headers.get("Accept", "") and resource == "pods":
            self._json(pod_table(selected[start:stop], metadata))
            return
        kind = KINDS[resource]
        self._json({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": copy.deepcopy(items)})

    def _selected(self, resource: str, namespace: str | None, query: dict[str, str]) -> list[Json]:
        return [
            item
            for item in list(self.cluster.objects.get(resource, []))
            if namespace in {None, item["metadata"].get("namespace")}
            and selects(query.get("labelSelector", ""), item["metadata"].get("labels", {}))
            and selects_field(query.get("fieldSelector", ""), item)
        ]

    def _create(self, resource: str, namespace: str, item: Json, query: dict[str, str]) -> None:
        item["metadata"]["namespace"] = namespace
        if self.cluster.find(resource, item["metadata"]["name"], namespace):
            self._status(409, "AlreadyExists", f'{resource} "{item["metadata"]["name"]}" already exists')
            return
        self.cluster.written_by(resource, item).update({}, item, self._manager(query))
        self._json(self.cluster.put(resource, item), 201)

    def _given(self, body: bytes) -> Json:
        return read_secret(body) if self.headers["Content-Type"] == CONTENT_TYPE else dict(json.loads(body))

    def _update(self, resource: str, item: Json, changed: Json, manager: Manager) -> None:
        self.cluster.written_by(resource, item).update(item, changed, manager)
        self._json(self.cluster.put(resource, changed))

    def _apply(self, resource: str, item: Json | None, wanted: Json, query: dict[str, str]) -> None:
        manager = Manager(query["fieldManager"], "Apply")
        live = item or {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], "metadata": wanted["metadata"]}
        try:
            changed = self.cluster.written_by(resource, wanted).apply(
                live if item else {"metadata": {}}, wanted, manager, force=query.get("force") == "true"
            )
        except ApplyConflictError as error:
            self._status(409, "Conflict", str(error))
            return
        changed = {**live, **changed, "metadata": {**live["metadata"], **changed["metadata"]}}
        self._json(self.cluster.put(resource, changed), 200 if item else 201)

    def _manager(self, query: dict[str, str], subresource: str = "") -> Manager:
        """The writer of a request; a server names one without ``fieldManager`` after its program."""
        return Manager(query.get("fieldManager") or self.headers["User-Agent"].partition("/")[0], "Update", subresource)

    def _watch(self, resource: str, namespace: str, query: dict[str, str]) -> None:
        """Stream every change until the client's time-out."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        told: dict[str, str] = {}
        start = query.get("resourceVersion", "")
        deadline = time.monotonic() + float(query.get("timeoutSeconds", 60))
        first = True
        while time.monotonic() < deadline:
            there = {item["metadata"]["name"]: item for item in self._selected(resource, namespace, query)}
            events: list[tuple[str, dict[str, Any]]] = [
                ("DELETED", {"metadata": {"name": name, "namespace": namespace}}) for name in told.keys() - there.keys()
            ]
            for name, item in there.items():
                version = item["metadata"].get("resourceVersion", "0")
                is_news = not first or start in {"", "0"} or int(version) > int(start)
                if told.get(name) != version and is_news:
                    events.append(("MODIFIED" if name in told else "ADDED", item))
            told = {name: item["metadata"].get("resourceVersion", "0") for name, item in there.items()}
            if first and query.get("sendInitialEvents") == "true":
                ended = {"resourceVersion": str(self.cluster.newest), "annotations": {"k8s.io/initial-events-end": "true"}}
                events.append(("BOOKMARK", {"metadata": ended}))
            first = False
            for event, item in events:
                kind = KINDS[resource]
                line = json.dumps({"type": event, "object": {**item, "kind": kind.name, "apiVersion": kind.api_version}}).encode() + b"\n"
                try:
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                except OSError:
                    self.close_connection = True
                    return
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    def _scale(self, item: Json, body: bytes, query: dict[str, str]) -> None:
        patch = json.loads(body)
        changed = copy.deepcopy(item)
        changed["spec"]["replicas"] = patch["spec"]["replicas"]
        self.cluster.written_by("deployments", item).update(item, changed, self._manager(query, "scale"))
        self.cluster.put("deployments", changed)
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
        self._send(200, "".join(f"{line}\n" for line in lines[-int(query.get("tailLines", len(lines) or 1)) :]).encode(), "text/plain")

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
        """Ignore clients that hang up: some tests do."""


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[str]:
    """Serve ``cluster``; yields its address."""
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
    """Whether a label selector of terms ``a=b`` and ``a in (b,c)`` matches these labels."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        if match := re.fullmatch(r"\s*(\S+) in \(([^)]*)\)", term):
            if labels.get(match[1]) not in match[2].split(","):
                return False
        else:
            key, _, value = term.partition("=")
            if labels.get(key.strip()) != value:
                return False
    return True


def selects_field(selector: str, item: Json) -> bool:
    """Whether a field selector of terms ``a.b=c`` matches this object."""
    for term in filter(None, selector.split(",")):
        path, _, value = term.replace("==", "=").partition("=")
        held: object = item
        for name in path.split("."):
            held = held.get(name, "") if isinstance(held, dict) else ""
        if held != value:
            return False
    return True


def merged(live: object, patch: object) -> Json:
    """Apply a merge patch, or a strategic one that changes no lists: maps merge key by key, null removes, everything else is replaced."""
    result = dict(live) if isinstance(live, dict) else {}
    assert isinstance(patch, dict)
    for name, value in patch.items():
        if name.startswith("$"):
            continue  # the order of lists is ignored
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), value)
        elif (
            isinstance(value, list)
            and isinstance(result.get(name), list)
            and all(isinstance(each, dict) and "name" in each for each in value)
        ):
            by_name = {each["name"]: each for each in result[name]}
            result[name] = list((by_name | {each["name"]: merged(by_name.get(each["name"]), each) for each in value}).values())
        else:
            result[name] = value
    return result
