"""Summarises the API server's information about a pod for an operator. No input or output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from herd.kube.errors import KubeError
from herd.topology import COMPONENT_NAMES, METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COMPONENT_LABEL = "app.kubernetes.io/component"
RELEASE_LABEL = "app.kubernetes.io/instance"
_AGENT_LABEL = "herd/agent"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a release."""

    name: str
    uid: str
    component: str
    rank: int | None
    """Ordinal within its StatefulSet (learner: torchrun's rank); None for actors, which are interchangeable."""
    state: str
    """State as in kubectl: ``Running``, ``Pending``, ``CrashLoopBackOff``, ``Terminating``."""
    ready: bool
    restarts: int
    node: str | None
    created: datetime | None
    metrics_port: int
    trouble: str = ""
    """Why it is not ready, if the cluster says so; one line."""
    agent: int = 0
    """For a learner in a run with several agents: the agent that it trains."""

    def age_seconds(self, now: datetime) -> float | None:
        """Seconds since it was created, by this machine's clock."""
        return None if self.created is None else max(0.0, (now - self.created).total_seconds())


def read_pod(item: Mapping[str, Any]) -> Pod | None:
    """Read one object of a PodList; None if it is not a pod of a release."""
    metadata, spec, status = (_mapping(item.get(key)) for key in ("metadata", "spec", "status"))
    labels = _mapping(metadata.get("labels"))
    component = str(labels.get(COMPONENT_LABEL, ""))
    name = str(metadata.get("name", ""))
    if not name or component not in COMPONENT_NAMES:
        return None
    statuses = _list(status.get("containerStatuses"))
    state, trouble = _state(metadata, status, statuses)
    return Pod(
        name=name,
        uid=str(metadata.get("uid", "")),
        component=component,
        rank=None if component == "actor" else _rank(name, labels),
        state=state,
        ready=any(each.get("type") == "Ready" and each.get("status") == "True" for each in _list(status.get("conditions"))),
        restarts=sum(int(each.get("restartCount") or 0) for each in statuses),
        node=spec.get("nodeName"),
        created=_time(metadata.get("creationTimestamp")),
        metrics_port=_metrics_port(spec),
        trouble=trouble,
        agent=int(agent) if (agent := str(labels.get(_AGENT_LABEL, ""))).isdecimal() else 0,
    )


def read_actor_rows(table: Mapping[str, Any], now: datetime) -> list[Pod]:
    """Read a Table of actors, as requested by `kubectl get pods`. It has a twentieth of the bytes of the pods.

    Ages are exact in the first two minutes, and later rounded as in kubectl. The reason why a pod is not ready is missing.

    Raises:
        KubeError: a column is missing.
    """
    columns = [str(column.get("name", "")).lower() for column in _list(table.get("columnDefinitions"))]
    pods = []
    for row in _list(table.get("rows")):
        cells = dict(zip(columns, row.get("cells") or [], strict=False))
        try:
            num_ready, _, num_containers = str(cells["ready"]).partition("/")
            restarts = int(str(cells["restarts"]).partition(" ")[0])
            age, node, state = _age_seconds(str(cells["age"])), str(cells["node"]), str(cells["status"])
            name = str(cells["name"])
        except (KeyError, ValueError) as error:
            raise KubeError(f"the API server's table of pods cannot be read: {error}") from error
        pods.append(
            Pod(
                name=name,
                uid="",
                component="actor",
                rank=None,
                state=state,
                ready=num_ready == num_containers and state == "Running",
                restarts=restarts,
                node=None if node == "<none>" else node,
                created=None if age is None else now - timedelta(seconds=age),
                metrics_port=METRICS_PORT,
            )
        )
    return pods


def _age_seconds(text: str) -> float | None:
    """Parse an age such as ``45s``, ``3m20s``, ``5d3h``; None for anything else."""
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "y": 365 * 86_400}
    parts = re.findall(r"(\d+)([smhdy])", text)
    return float(sum(int(number) * units[unit] for number, unit in parts)) if parts else None


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Order by component, as processes start, then rank, then name."""
    return sorted(pods, key=lambda pod: (COMPONENT_NAMES.index(pod.component), pod.agent, -1 if pod.rank is None else pod.rank, pod.name))


def worst_first(pods: Iterable[Pod]) -> list[Pod]:
    """Order by pods that are not ready, then by number of restarts, for lists that cannot show all pods."""
    return sorted(pods, key=lambda pod: (pod.ready, -pod.restarts, pod.name))


def spread(pods: Sequence[Pod], most: int) -> list[Pod]:
    """Choose at most ``most`` pods, evenly over the list, the same ones for the same list."""
    if len(pods) <= most:
        return list(pods)
    return [pods[index * len(pods) // most] for index in range(most)]


def _state(metadata: Mapping[str, Any], status: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return state and problem. The reason why a container does not run is more informative than the pod's phase."""
    if metadata.get("deletionTimestamp"):
        return "Terminating", ""
    for each in [*_list(status.get("initContainerStatuses")), *statuses]:
        waiting, terminated = (_mapping(_mapping(each.get("state")).get(key)) for key in ("waiting", "terminated"))
        reason = str(waiting.get("reason") or "")
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return reason, _one_line(waiting.get("message")) or _last_end(each)
        if terminated and int(terminated.get("exitCode") or 0) != 0:
            return str(terminated.get("reason") or "Error"), f"exit code {terminated.get('exitCode')}"
    for condition in _list(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Pending"), _one_line(condition.get("message"))
    phase = str(status.get("reason") or status.get("phase") or "Unknown")
    ends = [end for end in map(_last_end, statuses) if end]
    return phase, ends[0] if ends else ""


def _last_end(container: Mapping[str, Any]) -> str:
    last = _mapping(_mapping(container.get("lastState")).get("terminated"))
    return f"ended with exit code {last.get('exitCode')} ({last.get('reason') or 'Error'})" if last else ""


def _metrics_port(spec: Mapping[str, Any]) -> int:
    """The container port named ``metrics``."""
    for container in _list(spec.get("containers")):
        for port in _list(container.get("ports")):
            if port.get("name") == "metrics":
                return int(port.get("containerPort") or METRICS_PORT)
    return METRICS_PORT


def _rank(name: str, labels: Mapping[str, Any]) -> int | None:
    ordinal = str(labels.get(_INDEX_LABEL) or name.rpartition("-")[2])
    return int(ordinal) if ordinal.isascii() and ordinal.isdecimal() else None


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _one_line(text: object) -> str:
    return " ".join(str(text or "").split())[:200]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
