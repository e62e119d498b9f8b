"""A namespace of a cluster: which releases there are, their pods, and the pods' metrics, read through the API server."""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml
from kubernetes.client import ApiClient, AppsV1Api, Configuration, CoreV1Api
from kubernetes.client.exceptions import ApiException, OpenApiException
from kubernetes.config import ConfigException, list_kube_config_contexts, load_incluster_config, load_kube_config

from herd.topology import COMPONENT_NAMES, METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

COMPONENT_LABEL = "app.kubernetes.io/component"
RELEASE_LABEL = "app.kubernetes.io/instance"
_AGENT_LABEL = "herd/agent"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's own credentials and the name of its namespace."""
CONNECT_SECONDS, READ_SECONDS = 5.0, 30.0
"""A reachable API server accepts within a round trip; a page of 500 pods takes it part of a second."""
METRICS_SECONDS = 5.0
"""A pod answers in milliseconds; the API server would wait 30 s for an unreachable one."""
MAX_CONNECTIONS = 16
_PAGE = 500
"""Objects per answer, as in kubectl: a pod has about 8 kB."""
_OURS = f"app.kubernetes.io/part-of=herd,{COMPONENT_LABEL} in ({','.join(COMPONENT_NAMES)})"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a release."""

    name: str
    uid: str
    component: str
    rank: int | None
    """Ordinal within its StatefulSet (learner: torchrun's rank); None for actors, which are interchangeable."""
    agent: int
    """For a learner in a run with several agents: the agent that it trains."""
    state: str
    """State as in kubectl: ``Running``, ``Pending``, ``CrashLoopBackOff``, ``Terminating``."""
    ready: bool
    restarts: int
    node: str | None
    created: datetime | None
    metrics_ports: tuple[int, ...]
    """Ports of its metrics: of each shard, in the pod of a learner with several."""
    trouble: str
    """Why it is not ready, or how its last container ended; one line, empty if the cluster does not say."""


def read_pod(item: Mapping[str, Any]) -> Pod | None:
    """Read one object of a PodList, as JSON; None if it is not a pod of a release."""
    metadata, spec, status = (item.get(key) or {} for key in ("metadata", "spec", "status"))
    labels = metadata.get("labels") or {}
    component = labels.get(COMPONENT_LABEL)
    if component not in COMPONENT_NAMES:
        return None
    statuses = status.get("containerStatuses") or []
    state, trouble = _state(metadata, status, statuses)
    ordinal = str(labels.get(_INDEX_LABEL) or metadata["name"].rpartition("-")[2])
    agent = str(labels.get(_AGENT_LABEL, ""))
    ports = [port for container in spec.get("containers") or [] for port in container.get("ports") or []]
    metrics = sorted(int(port["containerPort"]) for port in ports if str(port.get("name")).startswith("metrics"))
    return Pod(
        name=metadata["name"],
        uid=str(metadata.get("uid", "")),
        component=component,
        rank=int(ordinal) if component != "actor" and ordinal.isdecimal() else None,
        agent=int(agent) if agent.isdecimal() else 0,
        state=state,
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or []),
        restarts=sum(int(each.get("restartCount") or 0) for each in statuses),
        node=spec.get("nodeName"),
        created=datetime.fromisoformat(created) if (created := metadata.get("creationTimestamp")) else None,
        metrics_ports=tuple(metrics) or (METRICS_PORT,),
        trouble=trouble,
    )


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Order by component, as processes start, then agent, rank and name."""
    return sorted(pods, key=lambda pod: (COMPONENT_NAMES.index(pod.component), pod.agent, -1 if pod.rank is None else pod.rank, pod.name))


def _state(metadata: Mapping[str, Any], status: Mapping[str, Any], statuses: list[Any]) -> tuple[str, str]:
    """Return state and trouble. The reason why a container does not run tells more than the pod's phase."""
    if metadata.get("deletionTimestamp"):
        return "Terminating", ""
    for each in [*(status.get("initContainerStatuses") or []), *statuses]:
        state = each.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        reason = waiting.get("reason")
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return reason, " ".join(str(waiting.get("message") or "").split())[:200] or _last_end(each)
        if terminated.get("exitCode"):
            return terminated.get("reason") or "Error", f"exit code {terminated['exitCode']}"
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("reason") or "Pending", " ".join(str(condition.get("message") or "").split())[:200]
    return status.get("reason") or status.get("phase") or "Unknown", next(filter(None, map(_last_end, statuses)), "")


def _last_end(container: Mapping[str, Any]) -> str:
    last = (container.get("lastState") or {}).get("terminated")
    return f"ended with exit code {last.get('exitCode')} ({last.get('reason') or 'Error'})" if last else ""


class KubeError(Exception):
    """The cluster cannot be read; one line."""


class Cluster:
    """One namespace behind one API server. Methods may be called from several threads; all raise ``KubeError``."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None, namespace: str | None = None) -> None:
        """Find the cluster in ``kubeconfig``, KUBECONFIG, ~/.kube/config or this pod's service account; nothing is sent yet."""
        configuration, own = _configuration(kubeconfig, context)
        configuration.retries = False  # accepted by urllib3: raise immediately, follow no redirects
        configuration.connection_pool_maxsize = MAX_CONNECTIONS
        configuration.safe_chars_for_path_param = ":"  # POD:PORT of the proxy
        self.client = ApiClient(configuration)
        self.namespace = namespace or own or "default"

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def replicas(self, release: str) -> Counter[str]:
        """Return the number of pods that a release requests, by component."""
        found: dict[str, Counter[str]] = {}
        apps = AppsV1Api(self.client)
        for what in ("deployment", "stateful_set"):
            for item in self.items(f"list {what.replace('_', '')}s", getattr(apps, f"list_namespaced_{what}"), label_selector=_OURS):
                labels, wanted = item["metadata"]["labels"], (item.get("spec") or {}).get("replicas")
                found.setdefault(labels[RELEASE_LABEL], Counter())[labels[COMPONENT_LABEL]] += 1 if wanted is None else wanted
        if release not in found:
            known = f"its releases are: {', '.join(sorted(found))}" if found else "this namespace has no releases"
            raise KubeError(f"no release {release} in namespace {self.namespace}; {known}")
        return found[release]

    def pods(self, release: str, *components: str) -> list[Pod]:
        """List the pods of a release, or of some components of it, in order."""
        selector = f"{RELEASE_LABEL}={release},{COMPONENT_LABEL} in ({','.join(components or COMPONENT_NAMES)})"
        items = self.items("list pods", CoreV1Api(self.client).list_namespaced_pod, label_selector=selector)
        return in_order(filter(None, map(read_pod, items)))

    def metrics(self, processes: Sequence[tuple[Pod, int]]) -> list[bytes | KubeError]:
        """Read /metrics of processes, each a pod and a port of it, several at once. A page is an error if the process does not answer."""
        request = CoreV1Api(self.client).connect_get_namespaced_pod_proxy_with_path

        def read(process: tuple[Pod, int]) -> bytes | KubeError:
            where = f"{process[0].name}:{process[1]}"
            try:
                return self._read("get pods/proxy", request, where, self.namespace, "metrics", read_seconds=METRICS_SECONDS)
            except KubeError as error:
                return error

        with ThreadPoolExecutor(max_workers=MAX_CONNECTIONS, thread_name_prefix="pod-metrics") as threads:
            return list(threads.map(read, processes))

    def items(self, purpose: str, request: Callable[..., Any], **options: Any) -> list[dict[str, Any]]:
        """List objects as JSON, page by page. ``purpose`` is for messages: ``list pods``."""
        found: list[dict[str, Any]] = []
        while True:
            body = self._read(purpose, request, self.namespace, limit=_PAGE, **options)
            try:
                page = json.loads(body)
                found += page["items"]
            except (ValueError, KeyError, TypeError) as error:
                raise KubeError(f"{self.client.configuration.host} does not answer {purpose} like a Kubernetes API server") from error
            token = page["metadata"].get("continue")
            if not token:
                return found
            options["_continue"] = token

    def _read(self, purpose: str, request: Callable[..., Any], *words: object, read_seconds: float = READ_SECONDS, **options: Any) -> bytes:
        server = self.client.configuration.host
        try:
            answer = request(*words, _preload_content=False, _request_timeout=(CONNECT_SECONDS, read_seconds), **options)
            return bytes(answer.data)
        except ApiException as error:
            raise KubeError(self._refusal(server, purpose, error)) from error
        except (OpenApiException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise KubeError(f"the API server at {server} does not answer: {_first_line(error)}") from error

    def _refusal(self, server: str, purpose: str, error: ApiException) -> str:
        verb, resource = purpose.split()
        try:
            message = " ".join(str(json.loads(error.body or "")["message"]).split())[:300]
        except (ValueError, KeyError, TypeError):
            message = _first_line(error.reason)
        match error.status:
            case 401:
                return f"{server} does not accept the credentials: log in again"
            case 403:
                return (
                    f'not allowed to {purpose} in namespace {self.namespace}: this needs verb "{verb}" on resource "{resource}": {message}'
                )
            case 0 | None:
                return f"no trusted connection to the API server at {server}: {message}"
            case status:
                return f"the API server at {server} answered {status} to {purpose}: {message}"


def _configuration(kubeconfig: Path | None, context: str | None) -> tuple[Configuration, str | None]:
    """Return the connection and its namespace. As in kubectl, KUBECONFIG may list several files."""
    configuration = Configuration()
    listed = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = os.pathsep.join(str(Path(word).expanduser()) for word in listed.split(os.pathsep) if Path(word).expanduser().is_file())
    try:
        if not files and kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(configuration)
            return configuration, (SERVICE_ACCOUNT / "namespace").read_text().strip()
        if not files:
            raise KubeError(f"no cluster: {listed} does not exist; name a file with --kubeconfig")
        contexts, current = list_kube_config_contexts(files)
        chosen = current if context is None else next((each for each in contexts if each["name"] == context), None)
        if chosen is None:
            raise KubeError(f"{files}: no context {context}; available are: {', '.join(each['name'] for each in contexts)}")
        load_kube_config(files, chosen["name"], configuration)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise KubeError(f"{files or 'the service account'}: no usable kubeconfig: {_first_line(error)}") from error
    return configuration, chosen["context"].get("namespace")


def _first_line(problem: object) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0].strip() if lines else type(problem).__name__
