"""A GPU computes the updates that the CPU computes: losses, gradients, weights, and the state of everything that learns.

The CPU's float32 results are themselves compared with float64 oracles elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from herd.components.suites import environment_spec
from herd.training.trainer import Trainer
from tests.gpu.agreement import RUNS, Updated, buffer_of, changes_of, distance, furthest, losses_of, on_cpu, settings_of, updated
from tests.training.small_runs import STEP

pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")  # as in recurrent.py
gpu = pytest.mark.gpu
FLOAT32 = 1e-3
"""Largest relative distance of gradients. Sums in another order differ by 1e-6."""
CONVOLUTIONS = 1e-2
"""As above, with ReLUs and max-poolings over images: the few that are at a kink go the other way. On the CPU alone, weights that differ by
1e-7 change the gradients of such small batches by up to 0.7 %."""
UPDATED = 3.0
"""What three updates changed may differ by this many times as much as a gradient."""
BFLOAT16 = 0.2
"""As above, for convolutions and products of 8 significant bits, against float32. Gradients that miss a layer are further away."""


@pytest.fixture(autouse=True)
def _exact_float32() -> Iterator[None]:
    """cuDNN's convolutions round float32 inputs to 10 bits (TF32) unless they are told otherwise."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def assert_agree(run: str, device: str, **learner: Any) -> None:
    """Compare some updates of ``run`` on the CPU with those on ``device`` with other settings of the learner."""
    expected = updated(settings_of(run), "cpu")
    mine = updated(settings_of(run, **learner), device)
    assert distance(mine.initial, expected.initial) == 0.0
    assert [update.is_finite for update in mine.told] == [True] * len(expected.told)
    assert distance(mine.gradients, expected.gradients) < tolerance_of(run)
    assert_same_end(mine, expected, UPDATED * tolerance_of(run))
    healths = [[update.health for update in some.told] for some in (mine, expected)]
    assert [health is None for health in healths[0]] == [health is None for health in healths[1]] == [True, False, True]


def assert_same_end(mine: Updated, expected: Updated, tolerance: float) -> None:
    """Compare what the updates left and told."""
    assert distance(changes_of(mine), changes_of(expected)) < tolerance
    assert furthest(mine.state, expected.state) < 2 * tolerance
    for own, theirs in zip(losses_of(mine), losses_of(expected), strict=True):
        assert own == pytest.approx(theirs, rel=tolerance, abs=1e-3)


def tolerance_of(run: str) -> float:
    """Return how far gradients may be apart."""
    return FLOAT32 if settings_of(run).network.torso == "mlp" else CONVOLUTIONS


@pytest.mark.parametrize("run", [pytest.param(run, marks=gpu) for run in RUNS])
def test_a_gpu_and_the_cpu_agree(run: str) -> None:
    assert_agree(run, "cuda")


def test_the_comparison_runs_without_a_gpu_and_can_fail() -> None:
    assert_agree("popart, pixel control, replay", "cpu", micro_batch_size=2)
    one, other = (updated(settings_of(f"impala, {kind}"), "cpu") for kind in ("v_trace", "none"))
    assert distance(one.gradients, other.gradients) > 10 * FLOAT32


COMPILED = {
    "default": ("impala, v_trace", "popart, pixel control, replay", "deep"),
    "reduce-overhead": ("impala, v_trace", "popart, pixel control, replay", "deep", "dice, burn-in", "laser, episodes of a service"),
}


@pytest.mark.parametrize(
    ("mode", "run"), [pytest.param(mode, run, marks=[gpu, pytest.mark.timeout(300)]) for mode, runs in COMPILED.items() for run in runs]
)
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # torch warns while it compiles
def test_compiled_updates_and_cuda_graphs_agree(mode: str, run: str) -> None:
    """Five updates: CUDA graphs run the first as usual, record the second, and replay the others. The last micro-batch is smaller."""
    torch._dynamo.reset()
    expected = updated(settings_of(run), "cpu", num_updates=5)
    mine = updated(settings_of(run, compile=mode), "cuda", num_updates=5)
    assert_same_end(mine, expected, UPDATED * tolerance_of(run))


@pytest.mark.parametrize("run", [pytest.param(run, marks=gpu) for run in ("deep", "nature, layer norm", "shallow, lstm")])
def test_bfloat16_gradients_are_close_to_those_of_float32(run: str) -> None:
    expected = updated(settings_of(run), "cpu", num_updates=1)
    mine = updated(settings_of(run), "cuda", precision=torch.bfloat16, num_updates=1)
    assert 1e-4 < distance(mine.gradients, expected.gradients) < BFLOAT16


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("run", [pytest.param(run, marks=gpu) for run in RUNS])
def test_an_update_never_waits_for_the_device(run: str) -> None:
    """``set_sync_debug_mode`` raises where the host would wait for the GPU."""
    settings = settings_of(run)
    trainer = Trainer(settings, environment_spec(settings.env), torch.device("cuda"), torch.bfloat16)
    buffers = [buffer_of(settings, seed, pinned=True) for seed in range(4)]
    for number, buffer in enumerate(buffers):
        if number == 2:  # first calls of libraries may wait, and the second one measures the health for the first time
            torch.cuda.set_sync_debug_mode("error")
        try:
            batch = trainer.to_device(buffer)
            trainer.begin(batch, buffer.num_replayed)
            trainer.finish(trainer.launch(batch), STEP)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert [update.is_finite for update in trainer.arrived(wait=True)] == [True] * len(buffers)


@pytest.mark.parametrize("kind", ["rmsprop", "adam", "adamw", "muon"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_an_update_with_a_gradient_that_is_not_finite_changes_nothing(device: str, kind: str) -> None:
    settings = settings_of("popart, pixel control, replay")
    settings = settings.model_validate({**settings.model_dump(), "optimizer": {"kind": kind}})
    trainer = Trainer(settings, environment_spec(settings.env), torch.device(device), torch.float32)
    trainer(buffer_of(settings, 0, pinned=device == "cuda"), STEP)

    def state() -> dict[str, torch.Tensor]:
        # Copies, because on the CPU the tensors of a part are its state itself.
        return {f"{part}/{name}": tensor.clone() for part, own in trainer.parts.items() for name, tensor in own.tensors().items()}

    before = state()
    broken = buffer_of(settings, 1, pinned=device == "cuda")
    broken.arrays["rewards"][0, 1] = float("nan")
    assert not trainer(broken, STEP).is_finite
    for name, tensor in state().items():
        assert torch.equal(tensor, before[name]), name
    assert trainer(buffer_of(settings, 2, pinned=device == "cuda"), STEP).is_finite


@pytest.mark.parametrize("kind", ["rmsprop", "adam", "adamw", "muon"])
@pytest.mark.parametrize(
    ("first", "then"), [("cpu", "cpu"), *(pytest.param(*pair, marks=gpu) for pair in (("cuda", "cpu"), ("cpu", "cuda")))]
)
def test_a_checkpoint_of_one_device_continues_on_another(first: str, then: str, kind: str) -> None:
    settings = settings_of("popart, pixel control, replay")
    settings = settings.model_validate({**settings.model_dump(), "optimizer": {"kind": kind, "epsilon": 1e-2}})
    written, read = (Trainer(settings, environment_spec(settings.env), torch.device(device), torch.float32) for device in (first, then))
    written(buffer_of(settings, 0, pinned=first == "cuda"), STEP)
    read.parts["model"].load(on_cpu(written.weights()))
    read.parts["auxiliary"].load(on_cpu(written.parts["auxiliary"].tensors()))
    read.parts["optimizer"].load(written.parts["optimizer"].tensors())
    read.parts["value_statistics"].load(written.parts["value_statistics"].tensors())
    told = [trainer(buffer_of(settings, 1, pinned=device == "cuda"), STEP) for trainer, device in ((written, first), (read, then))]
    assert told[1].gradient_norm == pytest.approx(told[0].gradient_norm, rel=FLOAT32)
    assert distance(on_cpu(read.weights()), on_cpu(written.weights())) < FLOAT32
    assert furthest(read.parts["optimizer"].tensors(), written.parts["optimizer"].tensors()) < UPDATED * FLOAT32
