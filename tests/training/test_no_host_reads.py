"""An update only queues work: nothing in it reads a value from the device, so a GPU never waits for the host within an update."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from herd.training.state import guarded_step
from tests.training.small_runs import RUN, STEP, batch_of, run_of, trainer_of

TWO_TASKS = {**RUN["env"], "tasks": ["catch", "catch_instructed"], "frame_height": 8, "frame_width": 8}
EVERY_UPDATE = {"health_interval_updates": 2}
REPLAYED = {"kind": "local", "fraction": 0.4, "capacity_unrolls": 10, "minimum_fill_unrolls": 1}
RUNS: dict[str, dict[str, Any]] = {
    "impala": {"optimizer": {"max_gradient_norm": 1.0, "momentum": 0.5}},
    "clipped ratios": {"loss": {"correction": "one_step", "ratio_clip": 0.3}},
    "epsilon correction": {"loss": {"correction": "epsilon"}, "value_scaling": {"kind": "multi_head"}},
    "popart, pixel control, replay and trust region": {
        "env": TWO_TASKS,
        "value_scaling": {"kind": "popart"},
        "auxiliary": {"kind": "pixel_control", "cell_size": 1},
        "loss": {"trust_region": "implied"},
        "replay": REPLAYED,
    },
    "dice, burn-in, adamw": {
        "loss": {"kind": "dice", "ablation": "entropy", "retrace_bootstrap": "taken"},
        "algorithm": {"unroll_length": 4, "burn_in": 2},
        "optimizer": {"kind": "adamw"},
    },
    "dice, burn-in of the whole unroll, trust region, pixel control, episodes of a service": {
        "env": TWO_TASKS,
        "algorithm": {"unroll_length": 4, "burn_in": 4},
        "auxiliary": {"kind": "pixel_control", "cell_size": 1},
        "loss": {"kind": "dice", "trust_region": "implied"},
        "replay": {"kind": "shared", "fraction": 0.4},
    },
    "images about their average, adam, normalised advantages": {
        "env": {"suite": "atari", "tasks": ["breakout"]},
        "network": {"torso": "shallow", "core": "none", "input_centering": "mean"},
        "loss": {"advantage_normalization": "batch"},
        "optimizer": {"kind": "adam"},
    },
    "several masked integers, trust region of the behaviour": {
        "env": {"suite": "gymnasium", "tasks": ["herd.components.suites.gymnasium.examples:Dials"]},
        "value_scaling": {"kind": "popart"},
        "loss": {"trust_region": "behaviour"},
        "replay": REPLAYED,
    },
    "squashed numbers beside an integer": {
        "env": {"suite": "gymnasium", "tasks": ["tests.acting.mixed:Bounded"]},
        "action": {"kind": "product", "bounds": "tanh"},
        "algorithm": {"unroll_length": 4, "burn_in": 2},
    },
}


class HostReadError(AssertionError):
    """The host read a value from the device."""


class _NoMethods(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in {"item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__", "nonzero", "unique"}:
            raise HostReadError(name)
        return func(*args, **kwargs or {})


class _NoOperations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # These tags mark operations whose result or shape depends on a tensor's content. For indexing this holds only with a mask.
        depends = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
        if func is torch.ops.aten.index.Tensor:
            depends = any(index is not None and index.dtype == torch.bool for index in args[1])
        if depends:
            raise HostReadError(str(func))
        return func(*args, **kwargs or {})


def test_skipping_a_step_of_any_optimizer_reads_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, weight_decay=0.1, fused=False)
    for is_finite in (True, False):
        parameter.grad = torch.full((3,), 1.0 if is_finite else torch.nan)
        before = parameter.detach().clone()
        with _NoMethods(), _NoOperations():
            guarded_step(optimizer, torch.tensor(is_finite))
        assert torch.equal(before, parameter) != is_finite


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_updates_never_read_values_from_the_device(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herd.networks.centering._reads_freely", lambda _pixels: False)  # as on a GPU
    learner = {**RUN["learner"], **EVERY_UPDATE}
    if changes.get("loss", {}).get("advantage_normalization"):
        learner.pop("micro_batch_size")
    settings = run_of(**changes, learner=learner)
    trainer = trainer_of(settings)
    for seed in range(3):
        buffer = batch_of(settings, seed)
        buffer.set_counts(settings.num_online_unrolls, settings.num_replayed_unrolls)
        batch = trainer.to_device(buffer)
        with _NoMethods(), _NoOperations():
            trainer.begin(batch, buffer.num_replayed)
            trainer.finish(trainer.launch(batch), STEP)
    told = trainer.arrived()
    assert [update.is_finite for update in told] == [True] * 3
    assert [update.health is not None for update in told] == [False, True, False]


READS = [torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.nonzero, torch.unique, bool, float, lambda mask: mask[mask > 0]]


@pytest.mark.parametrize("read", READS)
def test_the_guard_detects_every_kind_of_read(read: Any) -> None:
    with pytest.raises(HostReadError), _NoMethods(), _NoOperations():
        read(torch.ones(1))
