"""How many cores play, in how many processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.sheet import rounded_up, shown

if TYPE_CHECKING:
    from herd.bench.planning.demand import Demand
    from herd.bench.planning.options import PlanOptions
    from herd.bench.planning.sheet import Sheet
    from herd.config.settings import RunSettings


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """All actors, and what each does a second."""

    cores: float
    processes: int
    cores_each: int
    environments: int
    """Of all."""
    messages: float
    """Of unrolls, from all of them, per second."""
    asks: float
    """For weights, likewise."""
    asks_each: float


def plan_actors(settings: RunSettings, options: PlanOptions, demand: Demand, sheet: Sheet) -> ActorPlan:
    """All that an agent step costs the whole system, but for the learner's update, is taken for the actor's."""
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
    processes = sheet.count("processes", f"{shown(cores)} / {cores_each} cores each, rounded up", rounded_up(cores / cores_each))
    environments = sheet.count(
        "environments", f"{shown(processes)} x {actor.environments} (actor.environments)", processes * actor.environments
    )
    messages = sheet.line(
        "messages/s", f"{shown(demand.unrolls)} unrolls / {actor.environments} a message", demand.unrolls / actor.environments
    )
    steps_each = demand.steps / environments  # of one environment: all of an actor step together
    pull, unroll_steps = actor.pull_interval_steps, demand.steps / demand.unrolls
    pull_steps = pull if pull is not None else unroll_steps
    asks_each = sheet.line(
        "questions for weights/s, each", f"{shown(steps_each)} steps/s of an environment / {shown(pull_steps)}", steps_each / pull_steps
    )
    asks = sheet.line("questions for weights/s", f"{shown(asks_each)} x {shown(processes)}", asks_each * processes)
    sheet.note(f"actors and CPU learners: {demand.stage.source}")
    return ActorPlan(cores, processes, cores_each, environments, messages, asks, asks_each)
