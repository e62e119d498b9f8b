"""How many parameter servers serve the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.learners import NETWORK_SHARE
from herd.bench.planning.sheet import rounded_up, shown, shown_bytes
from herd.wire.connections import MAX_CONNECTIONS
from herd.wire.weights_client import PAUSE_SECONDS

if TYPE_CHECKING:
    from herd.bench.planning.actors import ActorPlan
    from herd.bench.planning.demand import Demand
    from herd.bench.planning.figures import Figures
    from herd.bench.planning.options import PlanOptions
    from herd.bench.planning.sheet import Sheet

SERVER_SHARE = 0.5
"""Of one core, what a server may use on average: its one thread serves everybody, and whoever comes meanwhile waits."""
CONNECTIONS_EACH = 2
"""Of an actor: one asks for weights, one leases its index."""
MOST_CHILDREN = 32
"""Replicas below one server: less than half of a core for their questions (docs/messaging.md)."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The root and its replicas."""

    replicas: int
    """That actors ask; 0: they ask the root."""
    between: int
    """Replicas that only serve other replicas: on the levels between the root and those that actors ask."""
    levels: int
    """Of replicas."""
    with_weights: float
    """Answers per second that hold weights, to actors."""
    bytes_out: float
    """To actors, per second."""
    replica_bytes_in: float
    """Of each replica, on any level, per second."""
    root_bytes_out: float
    """To whom it serves, per second."""
    relayed_bytes_out: float
    """From replicas to the replicas below them, per second: of all together."""
    cores: float
    """Of all servers that actors ask."""
    bounds: dict[str, int]


def plan_servers(options: PlanOptions, figures: Figures, *, demand: Demand, actors: ActorPlan, sheet: Sheet) -> ServerPlan:
    """Servers as their processor time, the network and connections call for."""
    sheet.section("weights")
    weights, room = figures.weights, options.pod_bytes_per_second * NETWORK_SHARE
    with_weights = sheet.line(
        "answers with weights/s",
        f"{shown(actors.processes)} x the lesser of {shown(actors.asks_each)} questions and {shown(demand.versions)} versions",
        actors.processes * min(actors.asks_each, demand.versions),
    )
    leaving = sheet.line(
        "weights out", f"{shown(with_weights)} x {shown_bytes(demand.version_bytes)}", with_weights * demand.version_bytes, "B/s"
    )
    each = weights.microseconds_per_answer + weights.microseconds_per_megabyte * demand.version_bytes / 1e6
    cores = sheet.line(
        "cores of parameter servers",
        f"({shown(with_weights)} x {shown(each)} us + {shown(actors.asks - with_weights)} 'not modified' x "
        f"{shown(weights.microseconds_per_not_modified)} us) / 1e6",
        (with_weights * each + (actors.asks - with_weights) * weights.microseconds_per_not_modified) / 1e6,
    )
    connections = actors.processes * CONNECTIONS_EACH
    bounds = {
        "processor": sheet.count(
            "servers for their processors", f"{shown(cores)} / {SERVER_SHARE} each, rounded up", rounded_up(cores / SERVER_SHARE)
        ),
        "network": sheet.count(
            "servers for the network", f"{shown_bytes(leaving)}/s / {shown_bytes(room)}/s each, rounded up", rounded_up(leaving / room)
        ),
        "connections": sheet.count(
            "servers for connections",
            f"{shown(connections)} / {shown(MAX_CONNECTIONS)} each, rounded up",
            rounded_up(connections / MAX_CONNECTIONS),
        ),
    }
    needed = max(bounds.values())
    replicas = sheet.count(
        "replicas", "none: the root is enough" if needed == 1 else "the most of these, below the root", 0 if needed == 1 else needed
    )
    sheet.note(f"parameter servers: {weights.source}")
    tree = _tree(demand, replicas, room, sheet) if replicas else _Tree(between=0, levels=0, fetched=0.0, root_bytes_out=leaving)
    return ServerPlan(
        replicas=replicas,
        between=tree.between,
        levels=tree.levels,
        with_weights=with_weights,
        bytes_out=leaving,
        replica_bytes_in=tree.fetched,
        root_bytes_out=tree.root_bytes_out,
        relayed_bytes_out=(replicas + tree.between) * tree.fetched - tree.root_bytes_out if replicas else 0.0,
        cores=cores,
        bounds=bounds,
    )


@dataclass(frozen=True, slots=True)
class _Tree:
    """The root and the levels below it."""

    between: int
    levels: int
    fetched: float
    """By each replica, bytes per second."""
    root_bytes_out: float


def _tree(demand: Demand, replicas: int, room: float, sheet: Sheet) -> _Tree:
    """Each replica fetches every version that it sees; one that asks all the time sees a hundred a second."""
    seen = min(demand.versions, 1.0 / PAUSE_SECONDS)
    child = sheet.line("weights to a replica", f"{shown(seen)} x {shown_bytes(demand.version_bytes)}", seen * demand.version_bytes, "B/s")
    children = max(1, min(MOST_CHILDREN, math.floor(room / child)))
    children = sheet.count(
        "replicas below one server", f"{shown_bytes(room)}/s / {shown_bytes(child)}/s, at most {MOST_CHILDREN}", children
    )
    if replicas <= children:
        return _Tree(between=0, levels=1, fetched=child, root_bytes_out=replicas * child)
    remedy = "put replicas below replicas (paramserver.upstream)"
    if children < MOST_CHILDREN:
        interval = math.ceil(demand.updates * replicas * demand.version_bytes / room)
        remedy = f"publish less often (learner.publish_interval_updates {interval}), or as bfloat16, or {remedy}"
    sheet.note(f"the root feeds {children} replicas, not {replicas}: {remedy}")
    counts = _levels(replicas, children)
    levels = sheet.count("levels of replicas", f"{shown(children)} below each server reach {shown(replicas)}", len(counts))
    between = 0
    if children > 1:  # in a chain actors ask every link
        above = " + ".join(shown(count) for count in counts[:-1])
        between = sheet.count("replicas in between", f"{above}, each for at most {shown(children)} below it", sum(counts[:-1]))
    return _Tree(between=between, levels=levels, fetched=child, root_bytes_out=counts[0] * child)


def _levels(replicas: int, children: int) -> list[int]:
    """Replicas on each level, from below the root to those that actors ask; a chain where one server can feed one."""
    if children == 1:
        return [1] * replicas
    counts = [replicas]
    while counts[0] > children:
        counts.insert(0, math.ceil(counts[0] / children))
    return counts
