"""The update alone, on synthetic unrolls: the real `Trainer`, without a queue or messages before it and without publishing after it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.machine.measurement import Measurement, measure
from benchmarks.machine.synthetic import synthetic_unrolls
from herd.components.suites import environment_spec
from herd.config.run_contract import run_layout

if TYPE_CHECKING:
    from herd.config.run import RunSettings

# Two batches, so that neither is still in the cache when it is used again.
NUM_BATCHES = 2
# The arithmetic is the same at any rate, but random rewards must not make updates so large that they are skipped.
LEARNING_RATE = 1e-7


def measure_learner(settings: RunSettings, *, seconds: float, warmup_seconds: float = 1.0) -> Measurement:
    """Measure updates of ``learner.batch_size`` unrolls on ``learner.threads`` threads, ``learner.sample_reuse`` updates on each batch.

    Each fresh agent step counts once, however often it is trained on. Replayed steps do not count.

    Raises:
        RuntimeError: an update was skipped, so the measurement is invalid.
    """
    import torch  # noqa: PLC0415  bad settings are answered before loads torch
    from herd_learner.loop import choose_device  # noqa: PLC0415

    from herd.components.optimizers import Rates  # noqa: PLC0415
    from herd.service.host import usable_cpus  # noqa: PLC0415
    from herd.training.batch import BatchBuffer  # noqa: PLC0415
    from herd.training.trainer import Trainer  # noqa: PLC0415

    torch.set_num_threads(settings.learner.threads or usable_cpus())
    spec = environment_spec(settings.env)
    layout = run_layout(settings, spec)
    device, precision = choose_device(settings)
    trainer = Trainer(settings, spec, device, precision)
    batches = [
        BatchBuffer.from_unrolls(layout, synthetic_unrolls(layout, settings.learner.batch_size, seed=seed), pinned=device.type == "cuda")
        for seed in range(NUM_BATCHES)
    ]
    agent_steps = settings.num_online_unrolls * layout.new_steps
    upcoming = itertools.cycle(batches)
    rates = Rates(LEARNING_RATE)

    def step() -> int:
        buffer = next(upcoming)
        batch = trainer.to_device(buffer)
        trainer.begin(batch, buffer.num_replayed)
        for _ in range(settings.learner.sample_reuse):
            trainer.finish(trainer.launch(batch), rates)
        if not all(update.is_finite for update in trainer.arrived()):
            raise RuntimeError("the gradient of a synthetic batch was not finite")
        return agent_steps

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return measure(step, seconds=seconds, warmup_seconds=warmup_seconds, device=name)
