"""What each pod needs, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.sheet import shown, shown_bytes

if TYPE_CHECKING:
    from herd.bench.planning.actors import ActorPlan
    from herd.bench.planning.bandit import BanditPlan
    from herd.bench.planning.demand import Demand
    from herd.bench.planning.figures import Figures
    from herd.bench.planning.learners import LearnerPlan
    from herd.bench.planning.servers import ServerPlan
    from herd.bench.planning.sheet import Sheet
    from herd.config.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Pod:
    """One kind; everything of each."""

    role: str
    pods: int
    cores: float
    gpus: int
    memory_bytes: float
    bytes_in: float
    """Per second."""
    bytes_out: float
    """Per second."""


def plan_pods(
    settings: RunSettings,
    figures: Figures,
    *,
    demand: Demand,
    actors: ActorPlan,
    learners: LearnerPlan,
    servers: ServerPlan,
    bandit: BanditPlan | None,
    sheet: Sheet,
) -> tuple[Pod, ...]:
    """Network counts unrolls, weights and temperatures; acknowledgements, gradients and metrics are not in it."""
    memory, sheet_memory = figures.memory, _learner_memory(settings, figures, demand, learners, sheet)
    arriving, published = demand.unrolls * demand.unroll_bytes, demand.versions * demand.version_bytes
    server_memory = memory.paramserver_bytes + 2 * demand.version_bytes  # the visible version, and one that is not whole yet
    games = bandit.bytes_each_way if bandit is not None else 0.0
    pods = [
        Pod(
            "actor",
            actors.processes,
            actors.cores_each,
            0,
            memory.actor_bytes,
            (servers.bytes_out + games) / actors.processes,
            (arriving + games) / actors.processes,
        ),
        Pod(
            "learner",
            learners.shards,
            learners.cores_each,
            learners.gpus // learners.shards,
            sheet_memory,
            arriving / learners.shards,
            published / learners.shards,
        ),
        Pod("paramserver", 1, 1 if servers.replicas else max(1.0, servers.cores), 0, server_memory, published, servers.root_bytes_out),
    ]
    if servers.between:
        relayed = servers.relayed_bytes_out / servers.between
        pods.append(Pod("paramserver-between", servers.between, 1, 0, server_memory, servers.replica_bytes_in, relayed))
    if servers.replicas:
        leaving = servers.bytes_out if servers.between else servers.bytes_out + servers.relayed_bytes_out  # in a chain they feed each other
        pods.append(Pod("paramserver-replica", servers.replicas, 1, 0, server_memory, servers.replica_bytes_in, leaving / servers.replicas))
    if bandit is not None:
        pods.append(Pod("bandit", 1, 1, 0, memory.bandit_bytes, games, games))
    _totals(pods, sheet)
    if learners.shards > 1:
        sheet.note("between shards, each update moves all gradients once more: not in the network above, and wants a network of its own")
    sheet.note(f"memory: {memory.source}")
    return tuple(pods)


def _learner_memory(settings: RunSettings, figures: Figures, demand: Demand, learners: LearnerPlan, sheet: Sheet) -> float:
    base, unroll = figures.memory.learner_bytes, demand.raw_unroll_bytes
    sharded = settings.model_copy(update={"learner": settings.learner.model_copy(update={"shards": learners.shards})})
    queued = 2 * sharded.credit_capacity  # docs/messaging.md, "Bounds"
    replayed = settings.replay.capacity_unrolls / learners.shards if settings.num_replayed_unrolls else 0
    sheet.section("memory")
    return sheet.line(
        "memory of a learner shard",
        f"{shown_bytes(base)} + ({shown(queued)} queued + {shown(replayed)} replayed unrolls) x {shown_bytes(unroll)}",
        base + (queued + replayed) * unroll,
        "B",
    )


def _totals(pods: list[Pod], sheet: Sheet) -> None:
    sheet.section("together")
    kinds = [f"{shown(pod.pods)} x {shown(pod.cores)} {pod.role}" for pod in pods]
    sheet.line("cores", " + ".join(kinds), sum(pod.pods * pod.cores for pod in pods))
    sheet.count("GPUs", "one per learner shard", sum(pod.pods * pod.gpus for pod in pods))
    sheet.line("memory", "of all pods", sum(pod.pods * pod.memory_bytes for pod in pods), "B")
    sheet.line("network", "what all pods receive", sum(pod.pods * pod.bytes_in for pod in pods), "B/s")
