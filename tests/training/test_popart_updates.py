"""PopArt through the whole trainer over several updates, against a slow float64 oracle; every known mistake is made on purpose.

There are three tasks whose rewards differ by 300x. One never appears, and one is missing from some batches. Rows that only start a game
carry rewards and actions that must be ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from herd.components.optimizers import Rates
from herd.components.value_scaling.api import Statistics, UnrollTargets, unroll_targets
from herd.components.value_scaling.popart.scaling import PopArt
from herd.training import trainer as trainer_module
from herd.training.trainer import Trainer
from tests.oracles.actor_critic import Costs
from tests.oracles.popart import SlowPopArt, Unrolls
from tests.training.small_runs import BATCH_SIZE, buffer_of, run_of, trainer_of, unrolls_of

RATE = 0.05
LEARNING_RATE = 3e-3
NUM_UPDATES = 6
COSTS = Costs(clip_rho_threshold=1.0, clip_c_threshold=1.0, clip_pg_rho_threshold=1.0, baseline_cost=0.5, entropy_cost=0.01)
SETTINGS = run_of(
    env={"suite": "catch", "tasks": ["catch"], "reward_scales": [1.0, 300.0, 7.0], "frame_height": 4, "frame_width": 3},
    network={"torso": "mlp"},
    algorithm={"unroll_length": 4, "reward_shaping": "none"},
    value_scaling={"kind": "popart", "rate": RATE},
    optimizer={"max_gradient_norm": None, "epsilon": 0.01},
)
LAYERS = {"first": "torso.first", "second": "torso.second", "policy": "policy_head", "value": "value_head"}


def _arrays(number: int) -> dict[str, NDArray[Any]]:
    arrays = unrolls_of(SETTINGS, number)
    random = np.random.default_rng([7, number])
    arrays["task_id"][...] = 0 if number == 2 else random.integers(0, 2, BATCH_SIZE)
    scale = np.where(arrays["task_id"] == 1, 300.0, 1.0)[:, None]
    arrays["rewards"][...] = (arrays["rewards"] + 0.5) * scale
    arrays["rewards"][~arrays["row_valid"]] = 1e4
    return arrays


def _seen(arrays: dict[str, NDArray[Any]]) -> Unrolls:
    def rows(name: str, dtype: type = np.float64) -> NDArray[Any]:
        return arrays[name].swapaxes(0, 1).astype(dtype)

    frames = rows("frames") / 255.0
    return Unrolls(
        pixels=frames.reshape(*frames.shape[:2], -1),
        actions=rows("actions", np.int64),
        behaviour_logits=rows("behaviour_parameters"),
        rewards=rows("rewards"),
        terminated=rows("terminated", np.bool_),
        row_valid=rows("row_valid", np.bool_),
        task_ids=arrays["task_id"].astype(np.int64),
    )


def _trainer() -> Trainer:
    torch.set_num_threads(1)
    return trainer_of(SETTINGS)


def _named(trainer: Trainer) -> dict[str, NDArray[np.float64]]:
    weights = trainer.weights()
    return {f"{mine}.{part}": weights[f"{own}.{part}"].double().numpy() for mine, own in LAYERS.items() for part in ("weight", "bias")}


def _oracle(trainer: Trainer) -> SlowPopArt:
    return SlowPopArt(_named(trainer), 3, rate=RATE, costs=COSTS, discount=SETTINGS.algorithm.discount)


def _compare_updates() -> None:
    trainer = _trainer()
    slow = _oracle(trainer)
    for number in range(NUM_UPDATES):
        arrays = _arrays(number)
        assert trainer(buffer_of(SETTINGS, arrays), Rates(LEARNING_RATE)).is_finite
        slow.update(_seen(arrays), LEARNING_RATE)
        statistics = trainer.parts["value_statistics"].tensors()
        np.testing.assert_allclose(statistics["shift"].numpy(), slow.shift, rtol=2e-5, err_msg=f"shift after update {number}")
        np.testing.assert_allclose(statistics["second_moment"].numpy(), slow.second_moment, rtol=2e-5)
        told = trainer.values_by_task()
        np.testing.assert_allclose(told["value_shift"], slow.shift, rtol=2e-5)
        np.testing.assert_allclose(told["value_scale"], [slow.scale(task) for task in range(3)], rtol=1e-4)
        for name, parameter in _named(trainer).items():
            np.testing.assert_allclose(parameter, slow.parameters[name], rtol=1e-3, atol=2e-5, err_msg=f"{name} after update {number}")
    assert statistics["shift"][2] == 0.0  # the task that never appeared
    assert slow.scale(1) > 30.0 * slow.scale(0)  # the statistics of the others are far from their initial values
    assert slow.scale(1) > 20.0


def test_several_updates_agree_with_the_oracle() -> None:
    _compare_updates()


def _never_rescaled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PopArt, "rescale", lambda *_: None)


def _not_de_normalised(patch: pytest.MonkeyPatch) -> None:
    right = PopArt.values

    def wrong(
        self: PopArt, statistics: Statistics, heads: torch.Tensor, task_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        _, scale = right(self, statistics, heads, task_ids)
        return right(self, self.initial("cpu"), heads, task_ids)[0], scale

    patch.setattr(PopArt, "values", wrong)


def _losses_not_normalised(patch: pytest.MonkeyPatch) -> None:
    right = PopArt.values
    patch.setattr(PopArt, "values", lambda *arguments: (right(*arguments)[0], None))


def _old_statistics_in_the_rewrite(patch: pytest.MonkeyPatch) -> None:
    """Uses the old scale where the new one belongs."""
    right = PopArt.rescale

    def wrong(self: PopArt, head: torch.nn.Linear, before: Statistics, after: Statistics) -> None:
        moment = before["second_moment"] - before["shift"].square() + after["shift"].square()
        right(self, head, before, {"shift": after["shift"], "second_moment": moment})

    patch.setattr(PopArt, "rescale", wrong)


def _new_statistics_kept_from_the_next_update(patch: pytest.MonkeyPatch) -> None:
    """The head is rewritten for the new statistics, but read with the old ones."""
    right = Trainer._update_statistics

    def wrong(self: Trainer, parts: list[UnrollTargets], is_taken: torch.Tensor) -> None:
        before = self._statistics.current
        right(self, parts, is_taken)
        self._statistics.current = before

    patch.setattr(Trainer, "_update_statistics", wrong)


def _filler_rows_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        trainer_module,
        "unroll_targets",
        lambda targets, rows, task_ids, is_replayed: unroll_targets(targets, torch.ones_like(rows), task_ids, is_replayed),
    )


def _one_update_of_the_statistics_for_a_batch(patch: pytest.MonkeyPatch) -> None:
    right = PopArt.updated

    def wrong(self: PopArt, statistics: Statistics, targets: UnrollTargets) -> Statistics:
        means = [targets.mean[targets.task_ids == task].mean() for task in targets.task_ids.unique()]
        ids = targets.task_ids.unique()
        mean = torch.stack(means)
        return right(
            self, statistics, UnrollTargets(mean, mean.square(), torch.ones(len(ids)), ids, torch.zeros(len(ids), dtype=torch.bool))
        )

    patch.setattr(PopArt, "updated", wrong)


@pytest.mark.parametrize(
    "mistake",
    [
        _never_rescaled,
        _not_de_normalised,
        _losses_not_normalised,
        _old_statistics_in_the_rewrite,
        _new_statistics_kept_from_the_next_update,
        _filler_rows_counted,
        _one_update_of_the_statistics_for_a_batch,
    ],
)
def test_known_mistakes_are_detected(mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        _compare_updates()


@torch.no_grad()
def _values(trainer: Trainer, statistics: Statistics, frames: torch.Tensor, task: int) -> torch.Tensor:
    heads = trainer.agent(frames, *_rest(len(frames)))[0].values
    return trainer._value_scaling.values(statistics, heads, torch.tensor([task]))[0]


def test_new_statistics_leave_the_values_of_all_tasks_unchanged() -> None:
    """After an update, the un-normalised values equal those after the optimizer's step alone, for all tasks and pictures."""
    trainer, alone = _trainer(), _trainer()
    frames = torch.randint(0, 256, (8, 1, 1, 4, 3), dtype=torch.uint8)
    for number in range(3):
        arrays = _arrays(number)
        alone.parts["model"].load(trainer.weights())
        alone.parts["optimizer"].load(trainer.parts["optimizer"].tensors())
        alone.parts["value_statistics"].load(trainer.parts["value_statistics"].tensors())
        before = alone.parts["value_statistics"].tensors()
        alone._update_statistics = lambda parts, is_taken: None  # type: ignore[method-assign]  # noqa: ARG005
        for each in (trainer, alone):
            each(buffer_of(SETTINGS, arrays), Rates(LEARNING_RATE))
        after = trainer.parts["value_statistics"].tensors()
        assert not torch.equal(before["shift"], after["shift"])
        # The head of the task that never appeared does not even change by rounding.
        assert torch.equal(trainer.agent.value_head.weight[2], alone.agent.value_head.weight[2])
        for task in range(3):
            expected, found = _values(alone, before, frames, task), _values(trainer, after, frames, task)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))


def test_a_copied_agent_continues_like_the_original() -> None:
    """This is what a population does: copy weights, optimizer and statistics of the better agent."""
    better, worse = _trainer(), _trainer()
    for number in range(4):
        better(buffer_of(SETTINGS, _arrays(number)), Rates(LEARNING_RATE))
        worse(buffer_of(SETTINGS, _arrays(number + 10)), Rates(10 * LEARNING_RATE))
    worse.parts["model"].load(better.weights())
    worse.parts["optimizer"].load(better.parts["optimizer"].tensors())
    without_statistics = worse.parts["value_statistics"].tensors()
    worse.parts["value_statistics"].load(better.parts["value_statistics"].tensors())
    assert not torch.equal(worse.parts["value_statistics"].tensors()["shift"], without_statistics["shift"])
    for each in (better, worse):
        each(buffer_of(SETTINGS, _arrays(5)), Rates(LEARNING_RATE))
    for name, tensor in better.weights().items():
        assert torch.equal(worse.weights()[name], tensor), name
    for name, tensor in better.parts["value_statistics"].tensors().items():
        assert torch.equal(worse.parts["value_statistics"].tensors()[name], tensor), name


def _rest(num_rows: int) -> tuple[torch.Tensor, ...]:
    """The other inputs of a feed-forward agent, besides frames."""
    rows = (num_rows, 1)
    return torch.zeros(rows, dtype=torch.bool), torch.zeros(1, 0, 0), torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)
