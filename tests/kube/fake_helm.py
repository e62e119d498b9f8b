"""A ``helm`` that renders by the real one and leaves what it would apply in a file, and controllers that make pods of it."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from helm.tools.fetch_tools import ENGINES, helm_program
from tests.kube.fake_api_server import FakeCluster
from tests.kube.fake_objects import Json

_SCRIPT = """#!{python}
import json, pathlib, subprocess, sys
folder, verb = pathlib.Path({folder!r}), sys.argv[1]
history = sorted(folder.glob("revision-*.yaml"))
if verb in ("install", "upgrade", "template"):
    text = subprocess.run([{helm!r}, "template", *sys.argv[2:]], check=True, capture_output=True, text=True).stdout
elif verb == "rollback":
    text = (folder / f"revision-{{int(sys.argv[3]):03}}.yaml").read_text()
else:
    text = ""
if verb == "template":
    print(text)
else:
    (folder / f"revision-{{len(history) + 1:03}}.yaml").write_text(text)
"""
_PLURALS = {"NetworkPolicy": "networkpolicies"}


def write_helm(folder: Path) -> Path:
    """The program; ``folder`` gets a file for each revision."""
    program = folder / "helm"
    program.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder), helm=str(helm_program(ENGINES[-1]))))
    program.chmod(0o755)
    return program


class Controllers:
    """Called before every list: applies the newest revision, then makes and takes away pods, none of which is ever ready."""

    def __init__(self, cluster: FakeCluster, folder: Path, *, make_pods: bool) -> None:
        self._cluster = cluster
        self._folder = folder
        self._make_pods = make_pods
        self._applied: Path | None = None
        self._made = 0

    def __call__(self) -> None:
        """Look once."""
        newest = max(self._folder.glob("revision-*.yaml"), default=None)
        if newest is not None and newest != self._applied:
            self._applied = newest
            self._apply([item for item in yaml.load_all(newest.read_text(), Loader=yaml.CSafeLoader) if item])
        if self._make_pods:
            self._reconcile()

    def _apply(self, items: list[Json]) -> None:
        keep = {name: kept for name in ("pods", "namespaces") if (kept := self._cluster.objects.get(name)) is not None}
        self._cluster.objects.clear()
        self._cluster.objects.update(keep)
        for item in items:
            if "helm.sh/hook" in item["metadata"].get("annotations", {}):
                continue
            item["metadata"]["generation"] = int(self._applied.stem[-3:]) if self._applied else 0
            self._cluster.objects.setdefault(_PLURALS.get(item["kind"], f"{item['kind'].lower()}s"), []).append(item | {"status": {}})

    def _reconcile(self) -> None:
        pods = self._cluster.objects.setdefault("pods", [])
        wanted: dict[str, tuple[Json, str]] = {}
        for item in [*self._cluster.objects.get("deployments", []), *self._cluster.objects.get("statefulsets", [])]:
            revision = hashlib.sha256(json.dumps(item["spec"]["template"], sort_keys=True).encode()).hexdigest()[:10]
            item["status"] = {"observedGeneration": item["metadata"]["generation"], "updateRevision": revision}
            wanted |= {f"{item['metadata']['name']}-{number}": (item, revision) for number in range(item["spec"]["replicas"])}
        pods[:] = [pod for pod in pods if pod["metadata"]["name"] in wanted]
        there = {pod["metadata"]["name"] for pod in pods}
        pods += [self._pod(name, item, revision) for name, (item, revision) in wanted.items() if name not in there]

    def _pod(self, name: str, owner: Json, revision: str) -> Json:
        self._made += 1
        labels: dict[str, Any] = owner["spec"]["template"]["metadata"]["labels"] | {"controller-revision-hash": revision}
        metadata = {"name": name, "namespace": owner["metadata"]["namespace"], "uid": f"uid-{self._made}", "labels": labels}
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes available"}
        return {"metadata": metadata, "spec": owner["spec"]["template"]["spec"], "status": {"phase": "Pending", "conditions": [condition]}}
