"""``auxiliary.kind: pixel_control`` through the whole trainer, combined with every loss, network and value scaling."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from herd.agent import build_agent
from herd.components.losses.api import Forward
from herd.components.suites import environment_spec
from herd.components.value_scaling import VALUE_SCALINGS
from herd.config.run_contract import contract_digest
from herd.training.batch import BatchBuffer
from herd.training.forward import run_forward
from herd.training.trainer import Trainer
from tests.oracles import pixel_control as oracle
from tests.training.small_runs import BATCH_SIZE, RUN, STEP, buffer_of, run_of, trainer_of, unrolls_of, values_of

pytestmark = pytest.mark.usefixtures("one_thread")

PIXELS = {"kind": "pixel_control", "cell_size": 1, "cost": 0.02}
BOARD = {**RUN["env"], "frame_height": 9, "frame_width": 8}
"""A picture of 8 x 8 cells; its last row of pixels belongs to no cell."""


def _settings(micro_batch_size: int = BATCH_SIZE, **changes: Any) -> Any:
    learner = {"batch_size": BATCH_SIZE, "micro_batch_size": micro_batch_size, "health_interval_updates": 2, "queue_batches": 9}
    return run_of(**{"env": BOARD, "auxiliary": PIXELS, "learner": learner, **changes})


def _batch(settings: Any, seed: int = 0) -> BatchBuffer:
    """A row that only starts a game is followed by the game's first picture; half of the unrolls are replayed."""
    arrays = unrolls_of(settings, seed)
    arrays["game_reset"][:, 1:] = ~arrays["row_valid"]
    buffer = buffer_of(settings, arrays)
    buffer.arrays["is_replayed"][::2] = True
    return buffer


def _forward(trainer: Trainer, settings: Any, buffer: BatchBuffer) -> Forward:
    return run_forward(
        buffer.batch,
        agent=trainer.agent,
        network=trainer._network,
        algorithm=settings.algorithm,
        value_scaling=VALUE_SCALINGS.make(settings.value_scaling, len(settings.env.tasks)),
        statistics=trainer.parts["value_statistics"].tensors(),
        num_trained=buffer.batch.trained.sum(),
    )


@pytest.mark.parametrize("loss", [{}, {"trust_region": "implied", "trust_region_threshold": 0.3}], ids=["all rows", "trust region"])
@pytest.mark.parametrize("burn_in", [0, 2])
def test_the_loss_agrees_with_the_oracle_on_accepted_rows(burn_in: int, loss: dict[str, Any]) -> None:
    changes = {"algorithm": {"unroll_length": 5, "burn_in": burn_in}, "loss": loss}
    settings = _settings(micro_batch_size=2, **changes)
    trainer, buffer = trainer_of(settings), _batch(settings)
    forward = _forward(trainer, settings, buffer)
    assert forward.auxiliary is not None
    values = forward.auxiliary.detach().double().numpy()
    batch = buffer.batch
    accepted = trainer._loss(forward).accepted
    assert accepted is not None
    assert torch.equal(accepted, batch.trained) == (not loss)
    counts, terminated = accepted.numpy(), batch.terminated[burn_in:].numpy()
    assert batch.frames is not None
    reward = oracle.rewards(batch.frames[burn_in:].numpy(), batch.game_reset[burn_in:].numpy(), grid=(8, 8), cell=1)
    target = oracle.returns(reward, values, terminated, counts, discount=0.9)
    expected, _ = oracle.loss_and_gradient(target, values, batch.actions[burn_in:].long().numpy(), counts)

    plain = values_of(trainer_of(_settings(2, **changes, auxiliary={"kind": "none"}))(buffer, STEP).losses)
    told = trainer(buffer, STEP).losses
    rows = counts.sum()
    assert told["loss_pixel_control"].value == pytest.approx(expected / rows, rel=1e-4)
    assert told["pixel_control_reward"].value == pytest.approx(reward.mean(axis=(2, 3))[counts].sum() / rows, rel=1e-5)
    assert told["loss_pixel_control"].cost == 0.02
    num_trained = int(batch.trained.sum())
    assert told["loss_total"].value == pytest.approx(plain["loss_total"] + 0.02 * expected / num_trained, rel=1e-4)
    assert {name: told[name].value for name in plain if name != "loss_total"} == pytest.approx(
        {name: value for name, value in plain.items() if name != "loss_total"}, rel=1e-5
    )


def test_pixel_control_changes_neither_contract_nor_actor_weights() -> None:
    settings, plain = _settings(), _settings(auxiliary={"kind": "none"})
    spec = environment_spec(settings.env)
    trainer, other = trainer_of(settings), trainer_of(plain)
    assert trainer.weights().keys() == build_agent(plain, spec).state_dict().keys()
    assert contract_digest(settings, spec) == contract_digest(plain, spec)
    for name, tensor in other.weights().items():
        assert torch.equal(trainer.weights()[name], tensor)  # both start with the same weights
    assert other.parts["auxiliary"].tensors() == {}
    assert {name.partition(".")[0] for name in trainer.parts["auxiliary"].tensors()} == {"dense", "hidden", "dueling"}
    trainer(_batch(settings), STEP)
    assert {name.partition(".")[0] for name in trainer.parts["optimizer"].tensors()} >= {"auxiliary", "torso", "core", "value_head"}
