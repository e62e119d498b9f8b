"""Sizes replay, evaluator, population and inference for ``herd plan`` if the run has them, and decides on central inference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from herd.bench.plan_sheet import Pod, Sheet, rounded_up, shown, shown_bytes
from herd.config.replay_service import OPEN_SHARE
from herd.envs.make import environment_spec
from herd.protocols.replay.samples import PART_BYTES

if TYPE_CHECKING:
    from herd.bench.plan import ActorPlan, Demand, PlanOptions
    from herd.bench.plan_figures import Figures
    from herd.config.settings import RunSettings

BUSY_SHARE = 0.7
"""Average share of its cores for a service, because requests come in bursts."""
EVALUATOR_VERSIONS_PER_SECOND = 1.0
"""The evaluator fetches one version per evaluation, which takes longer than this."""


@dataclass(slots=True)
class ServicesPlan:
    """Pods beside actors, learners, parameter servers and the bandit, and bytes per second between these and them."""

    pods: list[Pod] = field(default_factory=list)
    to_learners: float = 0.0
    from_learners: float = 0.0
    to_actors: float = 0.0
    from_actors: float = 0.0
    learner_bytes: float = 0.0
    """Memory for replayed unrolls in the shards of one learner."""
    weights: float = 0.0
    """Bytes from the servers that serve actors."""


def plan_services(
    settings: RunSettings, options: PlanOptions, figures: Figures, *, demand: Demand, actors: ActorPlan, sheet: Sheet
) -> tuple[ServicesPlan, Literal["local", "remote"]]:
    """Size the run's services; the second value is the ``actor.inference`` that the figures support."""
    services = ServicesPlan()
    if settings.replay.kind == "shared":
        _plan_replay(settings, options, figures, demand=demand, actors=actors, services=services, sheet=sheet)
    pays = _what_pays(settings, figures, sheet)
    if settings.actor.inference == "remote":
        _plan_inference(settings, figures, demand=demand, actors=actors, services=services, sheet=sheet)
    memory = figures.memory
    if settings.population.strategy == "pbt":
        services.pods.append(Pod("population", 1, 1, 0, memory.paramserver_bytes, 0.0, 0.0))  # a report of a member a second
    if settings.evaluation.interval_seconds is not None:
        fetched = demand.agents * demand.version_bytes * min(EVALUATOR_VERSIONS_PER_SECOND, 1.0 / settings.evaluation.interval_seconds)
        services.pods.append(Pod("evaluator", 1, 1, 0, memory.actor_bytes, fetched, 0.0))
        services.weights += fetched
    if services.pods:
        sheet.note(
            "beside what they keep, replay and the population's controller are taken for a parameter server, evaluator and inference for "
            "an actor: their memory was not measured"
        )
    return services, pays


def _plan_replay(
    settings: RunSettings,
    options: PlanOptions,
    figures: Figures,
    *,
    demand: Demand,
    actors: ActorPlan,
    services: ServicesPlan,
    sheet: Sheet,
) -> None:
    assert settings.replay.kind == "shared"
    measured, room = figures.replay, options.pod_bytes_per_second * BUSY_SHARE
    sheet.section("replay")
    fresh = settings.num_online_unrolls
    drawn = sheet.line(
        "unrolls drawn/s",
        f"{shown(demand.unrolls)} x {settings.learner.batch_size - fresh} replayed / {fresh} fresh of a batch",
        demand.unrolls * (settings.learner.batch_size - fresh) / fresh,
    )
    cores = sheet.line(
        "cores",
        f"({shown(demand.unrolls)} unrolls in x {shown(measured.microseconds_per_inserted_unroll)} us + {shown(drawn)} out x "
        f"{shown(measured.microseconds_per_drawn_unroll)} us) / 1e6",
        (demand.unrolls * measured.microseconds_per_inserted_unroll + drawn * measured.microseconds_per_drawn_unroll) / 1e6,
    )
    steps = sheet.line(
        "agent steps kept",
        f"{shown(settings.replay.capacity_agent_steps)} (replay.capacity_agent_steps) + {shown(actors.environments)} open games x "
        f"{shown(options.game_steps)} (--game_steps)",
        settings.replay.capacity_agent_steps + actors.environments * options.game_steps,
    )
    kept = sheet.line(
        "memory for them", f"{shown(steps)} x {shown(measured.bytes_per_agent_step)} B", steps * measured.bytes_per_agent_step, "B"
    )
    unroll_steps = demand.steps / demand.unrolls
    arriving, leaving = demand.unrolls * demand.raw_unroll_bytes, drawn * unroll_steps * measured.bytes_per_agent_step
    limit = settings.replay_service.memory_bytes
    unfinished = actors.environments * options.game_steps * measured.bytes_per_agent_step
    bounds = [
        sheet.line("replicas for their processors", f"{shown(cores)} / {BUSY_SHARE} each, rounded up", rounded_up(cores / BUSY_SHARE)),
        sheet.line(
            "replicas for memory", f"{shown_bytes(kept)} / {shown_bytes(limit)} (replay_service.memory_bytes)", rounded_up(kept / limit)
        ),
        sheet.line(
            "replicas for open games",
            f"{shown_bytes(unfinished)} / ({OPEN_SHARE} x {shown_bytes(limit)})",
            rounded_up(unfinished / (OPEN_SHARE * limit)),
        ),
        sheet.line(
            "replicas for the network",
            f"{shown_bytes(max(arriving, leaving))}/s / {shown_bytes(room)}/s each, rounded up",
            rounded_up(max(arriving, leaving) / room),
        ),
    ]
    replicas = sheet.line("replicas", "the maximum of the above (replay_service.replicas)", max(bounds))
    batches = settings.replay.prefetch_batches
    ahead = batches * settings.learner.batch_size * demand.raw_unroll_bytes
    formula, slots = f"{shown(batches)} batches ahead of {shown_bytes(ahead / batches)}", 0.0
    if settings.network.core != "none":
        part = min(PART_BYTES, options.game_steps * measured.bytes_per_agent_step)
        each = 2 * part + demand.raw_unroll_bytes
        num_slots = settings.learner.batch_size - fresh
        slots = num_slots * each
        formula += f" + {shown(num_slots)} slots x {shown_bytes(each)} (two parts of an episode, one unpacked unroll)"
    services.learner_bytes = sheet.line("memory in the learner", formula, ahead + slots, "B")
    sheet.note(
        f"replay: {measured.source}; other games take more bytes a step than Breakout, rendered ones 100 times as many (docs/laser.md)"
    )
    each = figures.memory.paramserver_bytes + kept / replicas
    services.pods.append(Pod("replay", replicas, 1, 0, each, arriving / replicas, leaving / replicas))
    services.from_learners += arriving
    services.to_learners += leaving


def _what_pays(settings: RunSettings, figures: Figures, sheet: Sheet) -> Literal["local", "remote"]:
    """Recommend central inference only if every pair of a measurement shows more frames."""
    network = settings.network
    kind = network.torso if network.core == "none" else f"{network.torso}-{network.core}"
    measured = figures.inference.get(kind)
    if measured is None:
        sheet.note(
            f"actor.inference local: {kind} has not been measured with central inference (python -m benchmarks.inference, --figures FILE)"
        )
        return "local"
    way: Literal["local", "remote"] = "remote" if measured.lowest_ratio > 1.0 else "local"
    sheet.note(f"actor.inference {way}: remote made at least {shown(measured.lowest_ratio)} times the frames of local ({measured.source})")
    return way


def _plan_inference(
    settings: RunSettings, figures: Figures, *, demand: Demand, actors: ActorPlan, services: ServicesPlan, sheet: Sheet
) -> None:
    own, spent = settings.inference, demand.stage.microseconds["inference"]
    sheet.section("inference")
    cores = sheet.line("cores", f"{shown(demand.steps)} steps x {shown(spent)} us / 1e6", demand.steps * spent / 1e6)
    replicas = sheet.line(
        "replicas",
        f"{shown(cores)} / ({own.threads} threads x {BUSY_SHARE}), rounded up (inference.replicas)",
        rounded_up(cores / (own.threads * BUSY_SHARE)),
    )
    sheet.note(
        "inference: on CPUs, as an actor does it, and actors as with actor.inference local; for a GPU (inference.device cuda) measure it "
        "(python -m benchmarks.inference)"
    )
    planes = demand.raw_unroll_bytes * demand.unrolls  # an unroll holds each plane once, as a request does
    fetched = demand.agents * demand.version_bytes * min(demand.versions, 50.0) * replicas
    row_bytes = demand.raw_unroll_bytes * demand.unrolls / demand.steps
    kept = actors.environments * row_bytes * environment_spec(settings.env).frame_stack / replicas
    memory = figures.memory.actor_bytes + demand.agents * demand.version_bytes + kept
    services.pods.append(Pod("inference", replicas, own.threads, 0, memory, (planes + fetched) / replicas, 0.0))
    services.from_actors += planes
    services.weights += fetched
