"""What a Kubernetes API server reports about pods, for an operator. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from herd.topology import COMPONENT_NAMES, METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    agent: int
    """For a learner in a run with several agents: the agent that it trains."""
    state: str
    """State as in kubectl: ``Running``, ``Pending``, ``CrashLoopBackOff``, ``Terminating``."""
    ready: bool
    restarts: int
    node: str | None
    created: datetime | None
    metrics_port: int
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
    ports = [port for container in spec.get("containers") or [] for port in container.get("ports") or [] if port.get("name") == "metrics"]
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
        metrics_port=int(ports[0]["containerPort"]) if ports else METRICS_PORT,
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
