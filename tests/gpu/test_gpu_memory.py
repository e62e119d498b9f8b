"""Copies between the host and a GPU: page-locked batches on a stream of their own, results read back, and states of central inference."""

from __future__ import annotations

import pytest
import torch

from herd.components.suites import environment_spec
from herd.training.batch import BatchBuffer
from herd.training.readback import MAX_UPDATES_AHEAD, Readback
from herd.training.trainer import Trainer
from herd.transport.context import Context
from tests.gpu.agreement import buffer_of, settings_of
from tests.inference.serving import Served, remote_policy
from tests.inference.test_inference_equality import CASES, NUM_ROWS, Both, peaked_agent
from tests.inference.test_inference_equality import settings_of as inference_settings
from tests.training.small_runs import STEP

gpu = pytest.mark.gpu
LONG = 200_000_000
"""Cycles for which a kernel keeps the GPU busy: about a tenth of a second."""


@gpu
def test_a_batch_is_copied_beside_computation_and_its_memory_is_written_only_afterwards() -> None:
    settings = settings_of("shallow")
    trainer = Trainer(settings, environment_spec(settings.env), torch.device("cuda"), torch.float32)
    buffer = buffer_of(settings, 0, pinned=True)
    expected = {name: tensor.clone() for name, tensor in buffer.batch.tensors()}
    torch.cuda.synchronize()
    computed = torch.cuda.Event()
    torch.cuda._sleep(LONG)
    computed.record()
    batch = trainer.to_device(buffer)
    buffer.wait_until_copied()
    assert not computed.query()  # the copy did not wait for the computation before it
    for array in buffer.arrays.values():
        array[...] = 1  # as the next batch is written into the same memory
    for name, tensor in batch.tensors():
        assert tensor.is_cuda
        assert torch.equal(tensor.cpu(), expected[name]), name
    computed.synchronize()


@gpu
def test_a_batch_trains_as_copied_although_its_memory_is_written_at_once() -> None:
    """The update waits for its copy, and the block of a batch that was let go of is not reused while it is read."""
    settings = settings_of("shallow", micro_batch_size=5)
    losses = []
    for rewrites in (False, True):
        trainer = Trainer(settings, environment_spec(settings.env), torch.device("cuda"), torch.float32)
        buffer = buffer_of(settings, 0, pinned=True)
        fresh = {name: array.copy() for name, array in buffer_of(settings, 1).arrays.items()}
        torch.cuda._sleep(LONG)
        for _ in range(3):
            batch = trainer.to_device(buffer)
            trainer.finish(trainer.launch(batch), STEP)
            del batch
            if rewrites:
                buffer.wait_until_copied()
            else:
                torch.cuda.synchronize()
            for name, array in buffer.arrays.items():
                array[...] = fresh[name]
        losses.append([update.losses["loss_total"].value for update in trainer.arrived(wait=True)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_results_are_read_back_in_order_and_the_host_is_never_too_far_ahead(device: str) -> None:
    readback: Readback[float] = Readback()
    sent, arrived = 0, []
    while sent < 6:
        if device == "cuda":
            torch.cuda._sleep(LONG // 10)
        tensor = torch.full((), float(sent), device=device)
        readback.send([tensor], lambda here: float(here[0]))
        if device == "cuda":
            tensor.fill_(-1.0)  # after the copy on the same stream
        sent += 1
        arrived += readback.arrived()
        assert sent - len(arrived) <= MAX_UPDATES_AHEAD
    arrived += readback.arrived(wait=True)
    assert arrived == [float(number) for number in range(6)]
    assert not readback.is_under_way


@pytest.mark.parametrize("pinned", [False, pytest.param(True, marks=gpu)])
def test_buffers_are_page_locked_where_there_is_a_gpu(pinned: bool) -> None:
    buffer = buffer_of(settings_of("impala, v_trace"), 0, pinned=pinned)
    assert isinstance(buffer, BatchBuffer)
    assert buffer.batch.actions.is_pinned() == pinned


@pytest.mark.parametrize("case", [pytest.param(case, marks=gpu) for case in CASES])
def test_central_inference_on_a_gpu_equals_a_local_policy(context: Context, case: str) -> None:
    settings = inference_settings(case)
    agent = peaked_agent(settings)
    served = Served(settings, [agent], context=context, device="cuda")
    client = served.client(5)
    games = Both(settings, agent, remote_policy(client), range(5), tolerance=1e-4)
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        for _ in range(NUM_ROWS):
            games.ask()
            assert games.step().version == (1, 10)
    finally:
        torch.backends.cudnn.allow_tf32 = before
        served.end()
        client.close()
