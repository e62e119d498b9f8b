"""How many shards learn, and what bounds their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.figures import FiguresError
from herd.bench.planning.sheet import rounded_up, shown, shown_bytes
from herd.wire.connections import MAX_CONNECTIONS

if TYPE_CHECKING:
    from herd.bench.planning.actors import ActorPlan
    from herd.bench.planning.demand import Demand
    from herd.bench.planning.figures import Figures
    from herd.bench.planning.options import PlanOptions
    from herd.bench.planning.sheet import Sheet
    from herd.config.settings import RunSettings

INGEST_SHARE = 0.7
"""Of one core, what the I/O thread may use on average: bursts need the rest, and the training thread shares the interpreter with it."""
NETWORK_SHARE = 0.8
"""Of a pod's network, on average, for the same reason."""


@dataclass(frozen=True, slots=True)
class LearnerPlan:
    """All shards."""

    shards: int
    gpus: int
    cores_each: int
    bounds: dict[str, int]
    """Shards that each of the bounds calls for."""
    links: int
    """Shards that an actor holds connections to."""


def plan_learners(
    settings: RunSettings, options: PlanOptions, figures: Figures, *, demand: Demand, actors: ActorPlan, sheet: Sheet
) -> LearnerPlan:
    """Raise FiguresError where nobody knows how fast a GPU trains this network."""
    sheet.section("learner")
    ingest, room = figures.ingest, options.pod_bytes_per_second * NETWORK_SHARE
    ingest_cores = sheet.line(
        "cores of I/O threads",
        f"({shown(actors.messages)} messages x {shown(ingest.microseconds_per_message)} us + {shown(demand.unrolls)} unrolls x "
        f"{shown(ingest.microseconds_per_unroll)} us) / 1e6",
        (actors.messages * ingest.microseconds_per_message + demand.unrolls * ingest.microseconds_per_unroll) / 1e6,
    )
    arriving = sheet.line(
        "unrolls in", f"{shown(demand.unrolls)} x {shown_bytes(demand.unroll_bytes)}", demand.unrolls * demand.unroll_bytes, "B/s"
    )
    training = (
        _for_training_on_cpus(options, demand, sheet)
        if options.learner == "cpu"
        else _for_training(settings, options, figures, demand, sheet)
    )
    bounds = {
        "training": training,
        "I/O thread": sheet.count(
            "shards for their I/O threads",
            f"{shown(ingest_cores)} / {INGEST_SHARE} of a core each, rounded up",
            rounded_up(ingest_cores / INGEST_SHARE),
        ),
        "network": sheet.count(
            "shards for the network", f"{shown_bytes(arriving)}/s / {shown_bytes(room)}/s each, rounded up", rounded_up(arriving / room)
        ),
    }
    links = settings.actor.links
    sessions = actors.processes * min(links, max(bounds.values()))
    bounds["sessions"] = sheet.count(
        "shards for connections", f"{shown(sessions)} / {shown(MAX_CONNECTIONS)} each, rounded up", rounded_up(sessions / MAX_CONNECTIONS)
    )
    shards = sheet.count("shards", "the most of these", max(bounds.values()))
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
                f"nobody published how fast a GPU trains network.torso {settings.network.torso}: give --learner_frames_per_second, or "
                "--learner cpu"
            )
        rate, given = published.frames_per_second, "published"
        sheet.note(f"one GPU: {published.source}. No GPU learner was measured for this plan: --learner_frames_per_second N gives your own")
    trained = sheet.line(
        "frames/s to train on",
        f"{shown(options.frames_per_second)} x {shown(demand.trained_per_fresh)} (replayed and repeated ones included)",
        options.frames_per_second * demand.trained_per_fresh,
    )
    sheet.line("frames/s of one GPU", given, rate)
    if trained <= rate:
        return sheet.count("shards for training", f"{shown(trained)} / {shown(rate)}, rounded up", 1)
    sheet.note(f"several shards: {figures.shard_efficiency_source}")
    efficiency = figures.shard_efficiency
    needed = rounded_up(trained / (rate * efficiency))
    return sheet.count("shards for training", f"{shown(trained)} / ({shown(rate)} x {efficiency} together), rounded up", needed)


def _for_training_on_cpus(options: PlanOptions, demand: Demand, sheet: Sheet) -> int:
    spent, factor = demand.stage.microseconds["learner"], demand.trained_per_fresh / demand.stage.trained_per_fresh_unroll
    cores = sheet.line(
        "cores for training",
        f"{shown(demand.steps)} steps x {shown(spent)} us x {shown(factor)} (replayed and repeated ones included) / 1e6",
        demand.steps * spent * factor / 1e6,
    )
    sheet.note(
        f"a CPU learner is taken to be as fast on {options.learner_cores} cores as {options.learner_cores} times on one: not measured"
    )
    return sheet.count(
        "shards for training", f"{shown(cores)} / {options.learner_cores} cores each, rounded up", rounded_up(cores / options.learner_cores)
    )
