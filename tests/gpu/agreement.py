"""Updates of one run on two devices, and how far they may differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from herd.components.optimizers import Rates
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer, UpdateStatistics
from tests.training.small_runs import RUN, unrolls_of, values_of

TWO_TASKS = {**RUN["env"], "tasks": ["catch", "catch_instructed"], "frame_height": 8, "frame_width": 8}
ATARI = {"env": {"suite": "atari", "tasks": ["breakout"]}}
LOCAL = {"kind": "local", "fraction": 0.4, "capacity_unrolls": 10, "minimum_fill_unrolls": 1}
SHARED = {"kind": "shared", "fraction": 0.4, "minimum_fill_agent_steps": 1}
# Adam's and RMSProp's first steps are the gradient over its own size: a small epsilon would turn the rounding of a gradient near 0 into a
# whole step.
ADAM = {"kind": "adam", "epsilon": 1e-2}
RMSPROP = {"kind": "rmsprop", "epsilon": 1e-2}

RATE = Rates(1e-4)
"""With a hundred times this, three updates of the deep torso turn rounding into other weights, on the CPU alone too."""

RUNS: dict[str, dict[str, Any]] = {
    **{f"impala, {kind}": {"loss": {"correction": kind}} for kind in ("v_trace", "one_step", "epsilon", "none")},
    "impala, value": {"loss": {"q_estimate": "value", "lambda_": 0.9}},
    "impala, v_target": {"loss": {"q_estimate": "v_target"}, "optimizer": {**RMSPROP, "momentum": 0.5}},
    "impala, mean of normalised advantages, ratio clip": {
        "loss": {"advantage_normalization": "batch", "ratio_clip": 0.3, "reduction": "mean"},
        "optimizer": {**ADAM, "max_gradient_norm": 0.5},
    },
    "laser, implied policy": {"loss": {"trust_region": "implied", "trust_region_threshold": 0.7}, "replay": LOCAL},
    "laser, behaviour policy": {"loss": {"trust_region": "behaviour", "trust_region_threshold": 0.7}, "replay": LOCAL},
    "laser, episodes of a service": {"loss": {"trust_region": "implied", "trust_region_threshold": 0.7}, "replay": SHARED},
    "dice, burn-in": {
        "loss": {"kind": "dice"},
        "algorithm": {"unroll_length": 4, "burn_in": 2},
        "optimizer": {"kind": "adamw", "epsilon": 1e-2},
    },
    "popart": {"env": TWO_TASKS, "value_scaling": {"kind": "popart", "rate": 0.1}},
    "popart, pixel control, replay": {
        "env": TWO_TASKS,
        "value_scaling": {"kind": "popart", "rate": 0.1},
        "auxiliary": {"kind": "pixel_control", "cell_size": 1},
        "replay": LOCAL,
    },
    "instructions": {"env": TWO_TASKS, "network": {**RUN["network"], "language": True}},
    "vectors": {"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 8}}},
    "shallow": {**ATARI, "network": {"torso": "shallow"}, "optimizer": ADAM},
    "shallow, relative to the average image": {**ATARI, "network": {"torso": "shallow", "input_centering": "mean"}, "optimizer": ADAM},
    "shallow, lstm": {**ATARI, "network": {"torso": "shallow", "core": {"kind": "lstm", "size": 32}, "last_action_and_reward": True}},
    "nature, layer norm": {**ATARI, "network": {"torso": "nature", "layer_norm": True}},
    "deep": {**ATARI, "network": {"torso": "deep"}, "optimizer": RMSPROP},
    "shallow, lstm, dice": {**ATARI, "network": {"torso": "shallow", "core": {"kind": "lstm", "size": 32}}, "loss": {"kind": "dice"}},
    "deep, lstm": {**ATARI, "network": {"torso": "deep", "core": {"kind": "lstm", "size": 32}, "input_centering": "filters"}},
}
"""Every loss, its corrections and what surrounds it, every torso and core."""


def settings_of(run: str, **learner: Any) -> RunSettings:
    """The settings of one of `RUNS`, with other settings of the learner."""
    changes = RUNS[run]
    whole = changes.get("loss", {}).get("advantage_normalization") == "batch"
    own = {"batch_size": 5, "health_interval_updates": 2} | ({} if whole else {"micro_batch_size": 3})
    return RunSettings.model_validate({**RUN, "optimizer": RMSPROP, **changes, "learner": {**own, **learner}})


def buffer_of(settings: RunSettings, seed: int, *, pinned: bool = False) -> BatchBuffer:
    """A batch with replayed unrolls, if the run has them."""
    arrays = unrolls_of(settings, seed)
    for name in arrays.keys() & {"frames", "history_frames"}:
        # Noise: on a flat background the inputs of a max-pooling are equal, and rounding would decide which one gets the gradient.
        arrays[name][...] = np.random.default_rng(seed).integers(0, 256, arrays[name].shape)
    layout = run_layout(settings, environment_spec(settings.env))
    buffer = BatchBuffer.from_unrolls(layout, arrays, pinned=pinned)
    buffer.set_counts(settings.num_online_unrolls, settings.num_replayed_unrolls)
    return buffer


class Updated(NamedTuple):
    """What some updates left."""

    gradients: dict[str, Tensor]
    """Of the first update, before it is clipped."""
    initial: dict[str, Tensor]
    weights: dict[str, Tensor]
    state: dict[str, Tensor]
    """Of optimizer, value statistics, auxiliary head and average image."""
    told: list[UpdateStatistics]


def updated(settings: RunSettings, device: str, *, precision: torch.dtype = torch.float32, num_updates: int = 3) -> Updated:
    """Do a few updates; all results are on the CPU."""
    trainer = Trainer(settings, environment_spec(settings.env), torch.device(device), precision)
    initial = on_cpu(trainer.weights())
    gradients: dict[str, Tensor] = {}
    told = []
    for seed in range(num_updates):
        buffer = buffer_of(settings, seed, pinned=device == "cuda")
        batch = trainer.to_device(buffer)
        trainer.begin(batch, buffer.num_replayed)
        launched = trainer.launch(batch)
        gradients = gradients or on_cpu({name: own.grad for name, own in trainer.agent.named_parameters() if own.grad is not None})
        trainer.finish(launched, RATE)
        told += trainer.arrived()
    told += trainer.arrived(wait=True)
    state = (
        trainer.parts["optimizer"].tensors() | trainer.parts["value_statistics"].tensors() | on_cpu(trainer.parts["auxiliary"].tensors())
    )
    state |= on_cpu(dict(trainer.agent.named_buffers()))
    return Updated(gradients, initial, on_cpu(trainer.weights()), state, told)


def on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def distance(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Norm of the difference of all tensors together, relative to the norm of ``theirs``."""
    assert mine.keys() == theirs.keys()
    difference = torch.stack([(mine[name].double() - theirs[name].double()).norm() for name in theirs]).norm()
    return float(difference / torch.stack([tensor.double().norm() for tensor in theirs.values()]).norm())


def furthest(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest `distance` of a single tensor; where all is zero, as it should be, 0."""
    distances = (distance({name: mine[name]}, {name: theirs[name]}) for name in theirs if not torch.equal(mine[name], theirs[name]))
    return max(distances, default=0.0)


def changes_of(of: Updated) -> dict[str, Tensor]:
    """What the updates changed in the parameters."""
    return {name: of.weights[name].float() - of.initial[name].float() for name in of.gradients}


def losses_of(of: Updated) -> list[dict[str, float]]:
    """The losses and gradient norm of every update."""
    return [{**values_of(update.losses), "gradient_norm": update.gradient_norm} for update in of.told]
