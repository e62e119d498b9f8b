"""Turns the rendered chart into what ``podman play kube`` can run: Pods and ConfigMaps, with names in /etc/hosts instead of Services."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Manifest = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"
POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
"""Label that a StatefulSet gives its pods."""
REVISION = "metadata.labels['controller-revision-hash']"
"""Label with the revision of the template that a pod was created from."""
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


class PodPlan(NamedTuple):
    name: str
    component: str
    image: str
    names: tuple[str, ...]
    """Host names by which other pods find it."""
    manifests: tuple[Manifest, ...]
    """The ConfigMaps that the pod mounts, followed by the pod."""


def plan_pods(manifests: Iterable[Manifest]) -> list[PodPlan]:
    """Return the pods of all Deployments and StatefulSets, numbered. Their addresses are not known yet: see ``with_hosts``.

    These are left out: probes (podman would run curl in the container; the test polls instead), ports (podman would open them on this
    machine, where they clash), Services, policies and budgets.
    """
    rendered = [manifest for manifest in manifests if manifest]
    services = [manifest for manifest in rendered if manifest["kind"] == "Service"]
    configuration = tuple(manifest for manifest in rendered if manifest["kind"] == "ConfigMap")
    workloads = [manifest for manifest in rendered if manifest["kind"] in {"Deployment", "StatefulSet"}]
    return [_pod(workload, number, services, configuration) for workload in workloads for number in range(workload["spec"]["replicas"])]


def with_hosts(plan: PodPlan, addresses: Mapping[str, str]) -> list[Manifest]:
    """Manifests of one pod with host aliases for ``addresses``, which maps names to IP addresses."""
    pod = copy.deepcopy(plan.manifests[-1])
    pod["spec"]["hostAliases"] = [{"ip": address, "hostnames": [name]} for name, address in addresses.items()]
    return [*plan.manifests[:-1], pod]


def _pod(workload: Manifest, number: int, services: list[Manifest], configuration: tuple[Manifest, ...]) -> PodPlan:
    template = copy.deepcopy(workload["spec"]["template"])
    revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    given = {POD_INDEX: str(number), REVISION: revision}
    name = f"{workload['metadata']['name']}-{number}"
    labels = template["metadata"]["labels"]
    spec = template["spec"]
    mounted = {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    for container in spec["containers"]:
        for unknown in (*PROBES, "ports"):
            container.pop(unknown, None)
        for variable in container["env"]:
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if field in given:
                variable.pop("valueFrom")
                variable["value"] = given[field]
    # Here a pod that ends has failed: a restart must not hide it.
    spec["restartPolicy"] = "Never"
    if workload["kind"] == "StatefulSet":
        spec["hostname"] = name
    chosen = [service["metadata"]["name"] for service in services if service["spec"].get("selector", {}).items() <= labels.items()]
    governing = workload["spec"].get("serviceName")
    names = tuple(chosen) + ((f"{name}.{governing}",) if governing else ())
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    needed = tuple(manifest for manifest in configuration if manifest["metadata"]["name"] in mounted)
    return PodPlan(name, labels[COMPONENT], spec["containers"][0]["image"], names, (*needed, pod))
