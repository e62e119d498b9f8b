"""What a rate of frames means in steps, unrolls and updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.sheet import shown, shown_bytes
from herd.bench.weights_size import num_parameters, weights_bytes
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout

if TYPE_CHECKING:
    from herd.bench.planning.figures import Figures, StageFigures
    from herd.bench.planning.options import PlanOptions
    from herd.bench.planning.sheet import Sheet
    from herd.config.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Demand:
    """Rates of the whole run, per second."""

    stage: StageFigures
    """Measured with this run's network."""
    steps: float
    unrolls: float
    updates: float
    versions: float
    """Of weights."""
    unroll_bytes: float
    """On the wire, compressed where the run does."""
    raw_unroll_bytes: int
    """In memory."""
    version_bytes: int
    trained_per_fresh: float
    """Unrolls that an update is made of, for each that an actor sends: replay and repeated batches."""


def work_out_demand(settings: RunSettings, options: PlanOptions, figures: Figures, sheet: Sheet) -> Demand:
    """Raise FiguresError where nobody measured this network."""
    stage = figures.stage_for(settings)
    layout = run_layout(settings, environment_spec(settings.env))
    learner, fresh = settings.learner, settings.num_online_unrolls
    frames, repeat, new_steps = options.frames_per_second, settings.env.action_repeat, layout.new_steps
    sheet.section("frames")
    sheet.line("env frames/s", "", frames)
    steps = sheet.line("agent steps/s", f"{shown(frames)} / {repeat} (env.action_repeat)", frames / repeat)
    unrolls = sheet.line("unrolls/s", f"{shown(steps)} / {new_steps} (agent steps of an unroll)", steps / new_steps)
    updates = sheet.line(
        "learner updates/s",
        f"{shown(unrolls)} / {fresh} fresh unrolls a batch x {learner.sample_reuse} (learner.sample_reuse)",
        unrolls / fresh * learner.sample_reuse,
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
    version_bytes = sheet.count(
        "bytes of the weights",
        f"{shown(parameters)} parameters, {learner.weights_dtype}",
        weights_bytes(settings, parameters),
        "B",
    )
    if settings.actor.compression != "none" and options.compression_ratio is None:
        sheet.note(f"compression {shown(ratio)} to 1: {figures.compression.source}")
    return Demand(
        stage=stage,
        steps=steps,
        unrolls=unrolls,
        updates=updates,
        versions=versions,
        unroll_bytes=unroll_bytes,
        raw_unroll_bytes=layout.bytes_per_unroll,
        version_bytes=version_bytes,
        trained_per_fresh=settings.learner.batch_size / fresh * learner.sample_reuse,
    )
