"""The learner's update alone: the real `Trainer` on batches in page-locked memory, by experiment, batch size, precision and compilation."""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu.networks import wait
from benchmarks.gpu.records import seconds_per_step, spread
from benchmarks.machine.synthetic import synthetic_unrolls
from herd.components.optimizers import Rates
from herd.components.suites import environment_spec
from herd.config.loading import load_settings
from herd.config.run_contract import run_layout
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer

if TYPE_CHECKING:
    from benchmarks.gpu.records import Case, Cases, Numbers

NUM_BATCHES = 3
RATE = Rates(1e-7)
"""So small that random rewards never make an update so large that it is skipped."""
SHALLOW = ("--network.torso", "shallow")


def cases(device: torch.device, *, is_small: bool, seconds: float) -> Cases:
    """Return the cases of this part."""
    own = partial(update, device, seconds=seconds)
    if is_small:
        return {"catch": partial(own, "catch"), "atari-shallow, 1": partial(own, "atari-shallow", "--learner.batch_size", "1")}
    chosen: dict[str, Case] = {}

    def add(experiment: str, batch_size: int | None, *words: str) -> None:
        sized = () if batch_size is None else ("--learner.batch_size", str(batch_size))
        settings = [f"{key.removeprefix('--')} {value}" for key, value in zip(words[::2], words[1::2], strict=True)]
        chosen[", ".join([experiment, *([] if batch_size is None else [str(batch_size)]), *settings])] = partial(
            own, experiment, *sized, *words
        )

    exact, graphs, fused = ("--learner.precision", "float32"), ("--learner.compile", "reduce-overhead"), ("--learner.compile", "default")
    for batch_size in (8, 32, 128, 512):
        add("atari-deep", batch_size)
        add("atari-shallow", batch_size)
    add("atari-deep", 32, *exact)
    add("atari-deep", 128, *exact)
    add("atari-shallow", 32, *exact)
    for micro in ("8", "32"):
        add("atari-deep", 128, "--learner.micro_batch_size", micro)
    for experiment in ("atari-deep-lstm", "breakout", "pong", "dice-atari", "laser-atari"):
        add(experiment, None)
    add("pong", None, *graphs)
    add("breakout", None, *graphs)
    add("atari-shallow", 32, *graphs)
    add("atari-deep", 32, *graphs)
    add("atari-deep", 128, *fused)
    add("atari-deep-lstm", None, *fused)
    return chosen


def update(device: torch.device, experiment: str, *words: str, seconds: float) -> Numbers:
    """Measure the updates of one experiment with changed settings: copy to the device, gradient, optimizer, and the results read back."""
    torch._dynamo.reset()
    settings = load_settings([Path(experiment)], [*words, "--actor.environments", "1"], {})
    spec = environment_spec(settings.env)
    layout = run_layout(settings, spec)
    is_gpu = device.type == "cuda"
    # As `auto` decides on the devices that this is for.
    precision = torch.float32 if settings.learner.precision == "float32" or not is_gpu else torch.bfloat16
    trainer = Trainer(settings, spec, device, precision)
    buffers = []
    for seed in range(NUM_BATCHES):
        buffer = BatchBuffer.from_unrolls(layout, synthetic_unrolls(layout, settings.learner.batch_size, seed=seed), pinned=is_gpu)
        buffer.set_counts(settings.num_online_unrolls, settings.num_replayed_unrolls)
        buffers.append(buffer)
    upcoming = itertools.cycle(buffers)

    def step() -> None:
        buffer = next(upcoming)
        batch = trainer.to_device(buffer)
        trainer.begin(batch, buffer.num_replayed)
        trainer.finish(trainer.launch(batch), RATE)
        if not all(done.is_finite for done in trainer.arrived()):
            raise RuntimeError("the gradient of a synthetic batch was not finite")

    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    step()
    wait(device)
    first = time.perf_counter() - started
    host_started, host_steps = 0.0, 0

    def counted() -> None:
        nonlocal host_steps
        step()
        host_steps += 1

    for _ in range(4):  # CUDA graphs are recorded in the second and third
        step()
    wait(device)
    host_started = time.thread_time()
    times = seconds_per_step(counted, partial(wait, device), seconds=seconds, warmup_steps=0)
    host = (time.thread_time() - host_started) / host_steps
    steps = settings.learner.batch_size * layout.new_steps
    return {
        "milliseconds": spread([1e3 * each for each in times]),
        "trained_steps_per_second": spread([steps / each for each in times]),
        "host_milliseconds": 1e3 * host,
        "first_update_seconds": first,
        "batch_megabytes": 1e-6 * buffers[0].batch.actions.untyped_storage().nbytes(),
        "device_gigabytes": 1e-9 * torch.cuda.max_memory_allocated() if is_gpu else None,
    }
