"""Computes the cluster for a rate of frames, for ``herd plan``, from settings and measured figures, without processes or files.

Each part adds its lines to the sheet, each a quantity with its formula in numbers, in the order of the calculation: frames,
actors, learner shards, parameter servers, bandit, other services (`plan_services`), pods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from herd.bench.plan_figures import FiguresError
from herd.bench.plan_services import plan_services
from herd.bench.plan_sheet import Pod, Sheet, rounded_up, shown, shown_bytes
from herd.bench.weights_size import num_parameters, weights_bytes
from herd.config.run_contract import run_layout
from herd.envs.make import environment_spec
from herd.protocols.weights.client import PAUSE_SECONDS
from herd.transport.connections import MAX_CONNECTIONS

if TYPE_CHECKING:
    from herd.bench.plan_figures import Figures, StageFigures
    from herd.bench.plan_services import ServicesPlan
    from herd.config.settings import RunSettings

INGEST_SHARE = 0.7
"""Average share of a core for the I/O thread: the rest is for bursts, and the training thread shares the interpreter with it."""
NETWORK_SHARE = 0.8
"""Average share of a pod's network, for the same reason."""
SERVER_SHARE = 0.5
"""Average share of a core for a server, whose single thread serves all clients in turn."""
CONNECTIONS_EACH = 2
"""Connections of an actor: one requests weights, one leases its index."""
MOST_CHILDREN = 32
"""Maximum number of replicas below one server; their requests use less than half a core (docs/messaging.md)."""
REQUEST_BYTES = 250
"""Bytes of a finished game and a starting game with their keys: 120 + 45 and a header."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of ``herd plan``."""

    frames_per_second: float
    """Env frames per second that the learners of all agents consume together."""
    learner: Literal["gpu", "cpu"] = "gpu"
    """Whether learner shards train on GPUs or CPUs."""
    learner_frames_per_second: float | None = None
    """Frames per second that one GPU trains on, including replayed ones; None for published figures."""
    learner_cores: int = 16
    """Cores of a shard that trains on CPUs."""
    headroom: float = 0.1
    """Share of each actor's core that is kept free."""
    pod_gigabits: float = 10.0
    """Network rate of a pod per second in each direction."""
    compression_ratio: float | None = None
    """Compression ratio of frames on the wire; None for the measured figure of ``actor.compression``."""
    game_steps: float = 1000.0
    """Agent steps of a game; determines the rate of bandit requests and replay's memory for games that have not ended."""

    @property
    def pod_bytes_per_second(self) -> float:
        """The same in bytes."""
        return self.pod_gigabits * 1e9 / 8


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan and its derivation."""

    demand: Demand
    actors: ActorPlan
    learners: LearnerPlan
    servers: ServerPlan
    bandit: BanditPlan | None
    inference: Literal["local", "remote"]
    """The value of ``actor.inference`` that the figures support."""
    pods: tuple[Pod, ...]
    sheet: Sheet


def make_plan(settings: RunSettings, options: PlanOptions, figures: Figures) -> Plan:
    """Compute the plan.

    Raises:
        FiguresError: a required figure is neither measured nor given.

    """
    sheet = Sheet()
    demand = work_out_demand(settings, options, figures, sheet)
    actors = plan_actors(settings, options, demand, sheet)
    learners = plan_learners(settings, options, figures, demand=demand, actors=actors, sheet=sheet)
    servers = plan_servers(options, figures, demand=demand, actors=actors, sheet=sheet)
    bandit = plan_bandit(options, figures, demand, sheet) if settings.loss.draws_temperatures else None
    services, inference = plan_services(settings, options, figures, demand=demand, actors=actors, sheet=sheet)
    pods = plan_pods(
        settings, figures, demand=demand, actors=actors, learners=learners, servers=servers, bandit=bandit, services=services, sheet=sheet
    )
    return Plan(demand, actors, learners, servers, bandit, inference, pods, sheet)


@dataclass(frozen=True, slots=True)
class Demand:
    """Rates of the whole run, per second."""

    stage: StageFigures
    """Figures measured with this run's network."""
    agents: int
    steps: float
    unrolls: float
    updates: float
    """Learner updates of each agent."""
    versions: float
    """Versions of each agent's weights."""
    unroll_bytes: float
    """Bytes on the wire, compressed if the run compresses."""
    raw_unroll_bytes: int
    """Bytes in memory."""
    version_bytes: int
    trained_per_fresh: float
    """Unrolls trained on for each unroll that an actor sends, with replay and repeated batches."""


def work_out_demand(settings: RunSettings, options: PlanOptions, figures: Figures, sheet: Sheet) -> Demand:
    """Compute the rates; raise FiguresError if this network has not been measured."""
    stage = figures.stage_for(settings)
    layout = run_layout(settings, environment_spec(settings.env))
    learner, fresh = settings.learner, settings.num_online_unrolls
    frames, repeat, new_steps = options.frames_per_second, settings.env.action_repeat, layout.new_steps
    sheet.section("frames")
    sheet.line("env frames/s", "", frames)
    steps = sheet.line("agent steps/s", f"{shown(frames)} / {repeat} (env.action_repeat)", frames / repeat)
    unrolls = sheet.line("unrolls/s", f"{shown(steps)} / {new_steps} (agent steps of an unroll)", steps / new_steps)
    agents = settings.agents
    shared = f" / {agents} agents" if agents > 1 else ""
    updates = sheet.line(
        "learner updates/s",
        f"{shown(unrolls)}{shared} / {fresh} fresh unrolls a batch x {learner.sample_reuse} (learner.sample_reuse)",
        unrolls / agents / fresh * learner.sample_reuse,
    )
    versions = sheet.line(
        "versions of weights/s",
        f"{shown(updates)} / {learner.publish_interval_updates} (learner.publish_interval_updates)",
        updates / learner.publish_interval_updates,
    )
    ratio = options.compression_ratio or figures.compression.ratios[settings.actor.compression]
    unroll_bytes = sheet.line(
        "bytes of an unroll", f"{shown_bytes(layout.bytes_per_unroll)} / {shown(ratio)} (compression)", layout.bytes_per_unroll / ratio, "B"
    )
    parameters = stage.parameters if stage.parameters is not None else num_parameters(settings)
    version_bytes = sheet.line(
        "bytes of the weights",
        f"{shown(parameters)} parameters, {learner.weights_dtype}",
        weights_bytes(settings, parameters),
        "B",
    )
    if settings.actor.compression != "none" and options.compression_ratio is None:
        sheet.note(f"compression {shown(ratio)} to 1: {figures.compression.source}")
    return Demand(
        stage=stage,
        agents=agents,
        steps=steps,
        unrolls=unrolls,
        updates=updates,
        versions=versions,
        unroll_bytes=unroll_bytes,
        raw_unroll_bytes=layout.bytes_per_unroll,
        version_bytes=version_bytes,
        trained_per_fresh=settings.learner.batch_size / fresh * learner.sample_reuse,
    )


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """All actors and their rates per second."""

    cores: float
    processes: int
    cores_each: int
    environments: int
    """Environments of all actors."""
    messages: float
    """Messages with unrolls from all actors, per second."""
    asks: float
    """Weight requests from all actors, per second."""
    asks_each: float


def plan_actors(settings: RunSettings, options: PlanOptions, demand: Demand, sheet: Sheet) -> ActorPlan:
    """Plan the actors. The whole system's cost of an agent step, except for the learner's update, counts as the actor's."""
    actor, spent = settings.actor, demand.stage.microseconds
    sheet.section("actors")
    cost = sheet.line(
        "core-us per agent step",
        f"{shown(spent['system'])} (whole system) - {shown(spent['learner'])} (learner's update)",
        spent["system"] - spent["learner"],
    )
    cores = sheet.line(
        "cores",
        f"{shown(demand.steps)} x {shown(cost)} / 1e6 / {shown(1 - options.headroom)} (headroom)",
        demand.steps * cost / 1e6 / (1 - options.headroom),
    )
    cores_each = max(actor.environment_threads, actor.inference_threads)
    processes = sheet.line("processes", f"{shown(cores)} / {cores_each} cores each, rounded up", rounded_up(cores / cores_each))
    environments = sheet.line(
        "environments", f"{shown(processes)} x {actor.environments} (actor.environments)", processes * actor.environments
    )
    messages = sheet.line(
        "messages/s", f"{shown(demand.unrolls)} unrolls / {actor.environments} a message", demand.unrolls / actor.environments
    )
    steps_each = demand.steps / environments  # of one environment; an actor's environments step together
    pull, unroll_steps = actor.pull_interval_steps, demand.steps / demand.unrolls
    pull_steps = pull if pull is not None else unroll_steps
    asks_each = sheet.line(
        "weight requests/s, each", f"{shown(steps_each)} steps/s of an environment / {shown(pull_steps)}", steps_each / pull_steps
    )
    asks = sheet.line("weight requests/s", f"{shown(asks_each)} x {shown(processes)}", asks_each * processes)
    sheet.note(f"actors and CPU learners: {demand.stage.source}")
    return ActorPlan(cores, processes, cores_each, environments, messages, asks, asks_each)


@dataclass(frozen=True, slots=True)
class LearnerPlan:
    """All shards of one agent."""

    shards: int
    gpus: int
    cores_each: int
    bounds: dict[str, int]
    """Shards required by each bound."""
    links: int
    """Shards to which each actor is connected."""


def plan_learners(
    settings: RunSettings, options: PlanOptions, figures: Figures, *, demand: Demand, actors: ActorPlan, sheet: Sheet
) -> LearnerPlan:
    """Plan the shards; raise FiguresError if the GPU rate of this network is unknown."""
    sheet.section("learner" if demand.agents == 1 else "learner of each agent")
    ingest, room = figures.ingest, options.pod_bytes_per_second * NETWORK_SHARE
    messages, unrolls = actors.messages / demand.agents, demand.unrolls / demand.agents
    ingest_cores = sheet.line(
        "cores of I/O threads",
        f"({shown(messages)} messages x {shown(ingest.microseconds_per_message)} us + {shown(unrolls)} unrolls x "
        f"{shown(ingest.microseconds_per_unroll)} us) / 1e6",
        (messages * ingest.microseconds_per_message + unrolls * ingest.microseconds_per_unroll) / 1e6,
    )
    arriving = sheet.line("unrolls in", f"{shown(unrolls)} x {shown_bytes(demand.unroll_bytes)}", unrolls * demand.unroll_bytes, "B/s")
    training = (
        _for_training_on_cpus(options, demand, sheet)
        if options.learner == "cpu"
        else _for_training(settings, options, figures, demand, sheet)
    )
    bounds = {
        "training": training,
        "I/O thread": sheet.line(
            "shards for their I/O threads",
            f"{shown(ingest_cores)} / {INGEST_SHARE} of a core each, rounded up",
            rounded_up(ingest_cores / INGEST_SHARE),
        ),
        "network": sheet.line(
            "shards for the network", f"{shown_bytes(arriving)}/s / {shown_bytes(room)}/s each, rounded up", rounded_up(arriving / room)
        ),
    }
    links = settings.actor.links
    sessions = math.ceil(actors.processes / demand.agents) * min(links, max(bounds.values()))
    bounds["sessions"] = sheet.line(
        "shards for connections", f"{shown(sessions)} / {shown(MAX_CONNECTIONS)} each, rounded up", rounded_up(sessions / MAX_CONNECTIONS)
    )
    shards = sheet.line("shards", "the maximum of the above", max(bounds.values()))
    if shards > settings.num_online_unrolls:
        sheet.note(
            f"{shards} shards need as many fresh unrolls in a batch, which has {settings.num_online_unrolls}: raise learner.batch_size"
        )
    sheet.note(f"I/O threads: {ingest.source}")
    cores = options.learner_cores if options.learner == "cpu" else 2 + math.ceil(ingest_cores / shards)
    return LearnerPlan(shards, shards if options.learner == "gpu" else 0, cores, bounds, min(links, shards))


def _for_training(settings: RunSettings, options: PlanOptions, figures: Figures, demand: Demand, sheet: Sheet) -> int:
    rate, given = options.learner_frames_per_second, "given"
    if rate is None:
        published = figures.learners.get(settings.network.torso)
        if published is None:
            raise FiguresError(
                f"no published GPU rate for network.torso {settings.network.torso}: set --learner_frames_per_second or --learner cpu"
            )
        rate, given = published.frames_per_second, "published"
        sheet.note(f"one GPU: {published.source}. No GPU learner was measured for this plan: --learner_frames_per_second N gives your own")
    fresh = options.frames_per_second / demand.agents
    trained = sheet.line(
        "frames/s to train on",
        f"{shown(fresh)} x {shown(demand.trained_per_fresh)} (replayed and repeated ones included)",
        fresh * demand.trained_per_fresh,
    )
    sheet.line("frames/s of one GPU", given, rate)
    if trained <= rate:
        return sheet.line("shards for training", f"{shown(trained)} / {shown(rate)}, rounded up", 1)
    sheet.note(f"several shards: {figures.shard_efficiency_source}")
    efficiency = figures.shard_efficiency
    needed = rounded_up(trained / (rate * efficiency))
    return sheet.line("shards for training", f"{shown(trained)} / ({shown(rate)} x {efficiency} together), rounded up", needed)


def _for_training_on_cpus(options: PlanOptions, demand: Demand, sheet: Sheet) -> int:
    spent, factor = demand.stage.microseconds["learner"], demand.trained_per_fresh / demand.stage.trained_per_fresh_unroll
    steps = demand.steps / demand.agents
    cores = sheet.line(
        "cores for training",
        f"{shown(steps)} steps x {shown(spent)} us x {shown(factor)} (replayed and repeated ones included) / 1e6",
        steps * spent * factor / 1e6,
    )
    sheet.note(
        f"assumes that a CPU learner is {options.learner_cores} times as fast on {options.learner_cores} cores as on one; not measured"
    )
    return sheet.line(
        "shards for training", f"{shown(cores)} / {options.learner_cores} cores each, rounded up", rounded_up(cores / options.learner_cores)
    )


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The root and its replicas."""

    replicas: int
    """Replicas that serve actors; 0 if actors use the root."""
    between: int
    """Replicas that only serve other replicas, on the levels between the root and the replicas that serve actors."""
    levels: int
    """Levels of replicas."""
    with_weights: float
    """Answers with weights to actors per second."""
    bytes_out: float
    """Bytes sent to actors, per second."""
    replica_bytes_in: float
    """Bytes that each replica of any level receives per second."""
    root_bytes_out: float
    """Bytes that the root sends to the servers or actors below it per second."""
    relayed_bytes_out: float
    """Bytes that all replicas together send to the replicas below them per second."""
    cores: float
    """Cores of all servers that serve actors."""
    bounds: dict[str, int]


def plan_servers(options: PlanOptions, figures: Figures, *, demand: Demand, actors: ActorPlan, sheet: Sheet) -> ServerPlan:
    """Plan the number of servers from processor time, network and connections."""
    sheet.section("weights")
    weights, room = figures.weights, options.pod_bytes_per_second * NETWORK_SHARE
    with_weights = sheet.line(
        "answers with weights/s",
        f"{shown(actors.processes)} x the smaller of {shown(actors.asks_each)} requests and {shown(demand.versions)} versions",
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
        "processor": sheet.line(
            "servers for their processors", f"{shown(cores)} / {SERVER_SHARE} each, rounded up", rounded_up(cores / SERVER_SHARE)
        ),
        "network": sheet.line(
            "servers for the network", f"{shown_bytes(leaving)}/s / {shown_bytes(room)}/s each, rounded up", rounded_up(leaving / room)
        ),
        "connections": sheet.line(
            "servers for connections",
            f"{shown(connections)} / {shown(MAX_CONNECTIONS)} each, rounded up",
            rounded_up(connections / MAX_CONNECTIONS),
        ),
    }
    needed = max(bounds.values())
    replicas = sheet.line(
        "replicas", "none: the root is enough" if needed == 1 else "the maximum of the above, below the root", 0 if needed == 1 else needed
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
    """Bytes that each replica receives per second."""
    root_bytes_out: float


def _tree(demand: Demand, replicas: int, room: float, sheet: Sheet) -> _Tree:
    """Plan the tree. Each replica fetches every version that it sees; polling continuously, it sees at most a hundred a second."""
    seen = demand.agents * min(demand.versions, 1.0 / PAUSE_SECONDS)
    child = sheet.line("weights to a replica", f"{shown(seen)} x {shown_bytes(demand.version_bytes)}", seen * demand.version_bytes, "B/s")
    children = max(1, min(MOST_CHILDREN, math.floor(room / child)))
    children = sheet.line("replicas below one server", f"{shown_bytes(room)}/s / {shown_bytes(child)}/s, at most {MOST_CHILDREN}", children)
    if replicas <= children:
        return _Tree(between=0, levels=1, fetched=child, root_bytes_out=replicas * child)
    remedy = "put replicas below replicas (paramserver.upstream)"
    if children < MOST_CHILDREN:
        interval = math.ceil(demand.agents * demand.updates * replicas * demand.version_bytes / room)
        remedy = f"publish less often (learner.publish_interval_updates {interval}), or as bfloat16, or {remedy}"
    sheet.note(f"the root feeds {children} replicas, not {replicas}: {remedy}")
    counts = _levels(replicas, children)
    levels = sheet.line("levels of replicas", f"{shown(children)} below each server reach {shown(replicas)}", len(counts))
    between = 0
    if children > 1:  # in a chain actors ask every link
        above = " + ".join(shown(count) for count in counts[:-1])
        between = sheet.line("replicas in between", f"{above}, each for at most {shown(children)} below it", sum(counts[:-1]))
    return _Tree(between=between, levels=levels, fetched=child, root_bytes_out=counts[0] * child)


def _levels(replicas: int, children: int) -> list[int]:
    """Return the replicas on each level, from below the root to those that serve actors; a chain if each server can feed only one."""
    if children == 1:
        return [1] * replicas
    counts = [replicas]
    while counts[0] > children:
        counts.insert(0, math.ceil(counts[0] / children))
    return counts


@dataclass(frozen=True, slots=True)
class BanditPlan:
    """The single bandit."""

    requests: float
    """Requests per second."""
    cores: float
    bytes_each_way: float


def plan_bandit(options: PlanOptions, figures: Figures, demand: Demand, sheet: Sheet) -> BanditPlan:
    """Plan the bandit, which gets one request at the end of each game."""
    sheet.section("bandit")
    requests = sheet.line(
        "requests/s",
        f"{shown(demand.steps)} steps / {shown(options.game_steps)} of a game (--game_steps)",
        demand.steps / options.game_steps,
    )
    spent = figures.bandit.microseconds_per_request
    cores = sheet.line("cores", f"{shown(requests)} x {shown(spent)} us / 1e6", requests * spent / 1e6)
    if requests > figures.bandit.answers_per_second:
        sheet.note(
            f"one bandit answered {shown(figures.bandit.answers_per_second)} requests/s at most, and there is only one: games of "
            f"{shown(options.game_steps)} steps end too often for it, and actors reuse temperatures"
        )
    sheet.note(f"bandit: {figures.bandit.source}")
    return BanditPlan(requests, cores, requests * REQUEST_BYTES)


def plan_pods(
    settings: RunSettings,
    figures: Figures,
    *,
    demand: Demand,
    actors: ActorPlan,
    learners: LearnerPlan,
    servers: ServerPlan,
    bandit: BanditPlan | None,
    services: ServicesPlan,
    sheet: Sheet,
) -> tuple[Pod, ...]:
    """Size the pods. The network includes unrolls, weights and temperatures, but not acknowledgements, gradients and metrics."""
    memory, sheet_memory = (
        figures.memory,
        _learner_memory(settings, figures, demand=demand, learners=learners, services=services, sheet=sheet),
    )
    arriving, published = demand.unrolls * demand.unroll_bytes, demand.agents * demand.versions * demand.version_bytes
    shards = demand.agents * learners.shards
    # For each agent: the visible version, and an incomplete one.
    server_memory = memory.paramserver_bytes + 2 * demand.agents * demand.version_bytes
    games = bandit.bytes_each_way if bandit is not None else 0.0
    pods = [
        Pod(
            "actor",
            actors.processes,
            actors.cores_each,
            0,
            memory.actor_bytes,
            (servers.bytes_out + games + services.to_actors) / actors.processes,
            (arriving + games + services.from_actors) / actors.processes,
        ),
        Pod(
            "learner",
            shards,
            learners.cores_each,
            learners.gpus // learners.shards,
            sheet_memory,
            (arriving + services.to_learners) / shards,
            (published + services.from_learners) / shards,
        ),
        Pod(
            "paramserver",
            1,
            1 if servers.replicas else max(1.0, servers.cores),
            0,
            server_memory,
            published,
            servers.root_bytes_out + (0.0 if servers.replicas else services.weights),
        ),
    ]
    if servers.between:
        relayed = servers.relayed_bytes_out / servers.between
        pods.append(Pod("paramserver-between", servers.between, 1, 0, server_memory, servers.replica_bytes_in, relayed))
    if servers.replicas:
        leaving = services.weights
        leaving += (
            servers.bytes_out if servers.between else servers.bytes_out + servers.relayed_bytes_out
        )  # in a chain they feed each other
        pods.append(Pod("paramserver-replica", servers.replicas, 1, 0, server_memory, servers.replica_bytes_in, leaving / servers.replicas))
    if bandit is not None:
        pods.append(Pod("bandit", 1, 1, 0, memory.bandit_bytes, games, games))
    pods += services.pods
    _totals(pods, sheet)
    if learners.shards > 1:
        sheet.note("between shards, each update moves all gradients once more: not in the network above, and wants a network of its own")
    sheet.note(f"memory: {memory.source}")
    return tuple(pods)


def _learner_memory(
    settings: RunSettings, figures: Figures, *, demand: Demand, learners: LearnerPlan, services: ServicesPlan, sheet: Sheet
) -> float:
    base, unroll = figures.memory.learner_bytes, demand.raw_unroll_bytes
    sharded = settings.model_copy(update={"learner": settings.learner.model_copy(update={"shards": learners.shards})})
    queued = 2 * sharded.credit_capacity  # docs/messaging.md, "Bounds"
    replayed = settings.replay.capacity_unrolls / learners.shards if settings.replay.kind == "uniform" else 0
    shared = services.learner_bytes / learners.shards
    sheet.section("memory")
    return sheet.line(
        "memory of a learner shard",
        f"{shown_bytes(base)} + ({shown(queued)} queued + {shown(replayed)} replayed unrolls) x {shown_bytes(unroll)}"
        + (f" + {shown_bytes(shared)} from the replay service" if shared else ""),
        base + (queued + replayed) * unroll + shared,
        "B",
    )


def _totals(pods: list[Pod], sheet: Sheet) -> None:
    sheet.section("together")
    kinds = [f"{shown(pod.pods)} x {shown(pod.cores)} {pod.role}" for pod in pods]
    sheet.line("cores", " + ".join(kinds), sum(pod.pods * pod.cores for pod in pods))
    sheet.line("GPUs", "one per learner shard", sum(pod.pods * pod.gpus for pod in pods))
    sheet.line("memory", "of all pods", sum(pod.pods * pod.memory_bytes for pod in pods), "B")
    sheet.line("network", "what all pods receive", sum(pod.pods * pod.bytes_in for pod in pods), "B/s")
