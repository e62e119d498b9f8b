"""A member that copies another is identical to it afterwards. A copy is complete or did not happen, wherever it is interrupted."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from herd_learner.group.collectives import ShardGroup
from herd_learner.group.rendezvous import Place
from herd_learner.intake.ledger import Ledger
from herd_learner.population.member import FitnessWindow
from herd_learner.record.meters import Meters
from herd_learner.record.records import Records, RunFiles

from herd.components.suites import environment_spec
from herd.components.suites.scores import ReferenceScores
from herd.config.run import RunSettings
from herd.protocols.population.journal import Copy
from herd.protocols.population.messages import Copied, Order, OwnSetting
from herd.run.checkpoints import CheckpointError
from herd.telemetry.logs import get_logger
from herd.telemetry.telemetry import Telemetry
from tests.failing_disks import no_space_beyond
from tests.learner.members import MemberLearner
from tests.training.small_runs import batch_of, run_of

pytestmark = pytest.mark.usefixtures("one_thread")

RMSPROP = {
    "optimizer": {"schedule": "constant", "momentum": 0.9},
    "sweep": {
        "optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-3, "high": 1e-2},
        "optimizer.epsilon": {"draw": "choice", "values": [0.1, 0.003]},
        "optimizer.max_gradient_norm": {"draw": "uniform", "low": 0.1, "high": 1.0},
        "loss.entropy_cost": {"draw": "log_uniform", "low": 1e-2, "high": 1.0},
    },
}
ADAMW = {
    "optimizer": {"kind": "adamw", "schedule": "constant", "warmup_updates": 0},
    "sweep": {
        "optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-3, "high": 1e-2},
        "optimizer.beta2": {"draw": "choice", "values": [0.9, 0.98]},
        "optimizer.weight_decay": {"draw": "uniform", "low": 0.01, "high": 0.1},
        "loss.baseline_cost": {"draw": "uniform", "low": 0.5, "high": 2.0},
    },
}
POPART = {**RMSPROP, "value_scaling": {"kind": "popart", "rate": 0.1}}
RUNS = {"rmsprop": RMSPROP, "adamw": ADAMW, "popart": POPART}


class _Learner(MemberLearner):
    """A member with small batches."""

    def __init__(self, directory: Path, agent: int, run: dict[str, Any]) -> None:
        population = {"strategy": "pbt", "fitness": "episode_return", "fitness_episodes": 3}
        super().__init__(run_of(**run, agents=3, population=population, run_dir=str(directory)), agent)

    def learn(self, seed: int) -> dict[str, float]:
        return self.update(batch_of(self.settings, seed))


def _order(donor: _Learner | None, settings: Mapping[str, Any], *, number: int = 7, applied: int = 0) -> Order:
    copied = None
    if donor is not None:
        copied = Copied(donor=donor.agent, learner_updates=donor.statistics.learner_updates, env_frames=0, applied=applied)
    own = tuple(OwnSetting(key=key, value=value) for key, value in settings.items())
    return Order(number=number, copied=copied, settings=own)


def _pair(directory: Path, run: dict[str, Any]) -> tuple[_Learner, _Learner]:
    """A donor after three updates, with a checkpoint, and a receiver after two other updates."""
    donor, receiver = _Learner(directory, 1, run), _Learner(directory, 2, run)
    assert donor.settings.own_values != receiver.settings.own_values
    for seed in range(3):
        donor.learn(seed)
    for seed in (10, 11):
        receiver.learn(seed)
    assert donor.write()
    assert receiver.write()
    return donor, receiver


def _records(learner: _Learner) -> Records:
    """What writes the learner's curve."""
    spec = environment_spec(learner.settings.env)
    return Records(
        learner.settings,
        learner.directory,
        origin=learner.origin,
        group=ShardGroup(Place(0, 1)),
        trainer=learner.trainer,
        batches=None,  # type: ignore[arg-type] # only checkpoints and reports read them
        statistics=learner.statistics,
        ledger=Ledger(),
        meters=Meters(Telemetry("learner", "run"), spec=spec, statistics=learner.statistics),
        files=RunFiles(learner.directory, on_failure=pytest.fail),
        member=learner.link.member,
        log=get_logger(),
    )


def _scaled(settings: RunSettings, factor: float) -> dict[str, float]:
    return {key: value * factor for key, value in settings.own_values.items() if isinstance(value, float)}


def _assert_close(one: Any, other: Any, where: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key, value in one.items():
            _assert_close(value, other[key], f"{where}/{key}")
    elif isinstance(one, list):
        assert torch.allclose(torch.tensor(one), torch.tensor(other), rtol=0.0, atol=1e-6, equal_nan=True), where
    elif isinstance(one, float):
        assert math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6), where
    else:
        assert one == other, where


@pytest.mark.parametrize("name", RUNS)
def test_after_a_copy_the_receivers_update_equals_the_donors(tmp_path: Path, name: str) -> None:
    donor, receiver = _pair(tmp_path, RUNS[name])
    assert receiver.carry_out(_order(donor, donor.settings.own_values))
    assert receiver.state() == donor.state()
    expected, found = donor.learn(5), receiver.learn(5)
    _assert_close(found, expected)
    _assert_close(receiver.state(), donor.state())
    # A member that restarts from its checkpoint makes the same update.
    again = _Learner(tmp_path, 2, RUNS[name])
    _assert_close(again.learn(5), expected)
    _assert_close(again.state(), donor.state())


def test_changed_settings_apply_after_the_optimizer_state_is_loaded(tmp_path: Path) -> None:
    donor, receiver = _pair(tmp_path, RMSPROP)
    changed = _scaled(donor.settings, 1 / 1.2)
    assert receiver.carry_out(_order(donor, changed))
    group = receiver.trainer.optimizer.param_groups[0]
    assert group["epsilon"] == changed["optimizer.epsilon"]
    receiver.learn(5)
    assert group["lr"] == changed["optimizer.learning_rate"]
    donor.settings = donor.settings.with_values(changed)
    donor.trainer.update_hyperparameters(donor.settings.loss, donor.settings.optimizer)
    donor.learn(5)
    _assert_close(receiver.state(), donor.state())


def test_without_a_copy_only_settings_change(tmp_path: Path) -> None:
    _, receiver = _pair(tmp_path, RMSPROP)
    receiver.play(1.0, 2.0, 3.0)
    before = receiver.state()
    changed = _scaled(receiver.settings, 1.2)
    assert receiver.carry_out(_order(None, changed))
    after = receiver.state()
    assert after["settings"] == changed
    assert {**after, "settings": 0, "group": 0} == {**before, "settings": 0, "group": 0}
    assert receiver.link.member.fitness == 2.0


def test_a_whole_batch_loss_is_copied_with_the_settings(tmp_path: Path) -> None:
    """Micro-batches have two unrolls, but advantages are normalised over all five."""
    run = {
        **RMSPROP,
        "sweep": {"loss.advantage_normalization": ["none", "batch", "none"]},
        "learner": {"batch_size": 5},
        "network": {"torso": "mlp", "core": "none"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("herd.components.torsos.TorsoSettings.micro_batch", lambda *_: 2)
        donor, receiver = _pair(tmp_path, run)
        assert receiver.carry_out(_order(donor, donor.settings.own_values))
        assert receiver.settings.own_values == {"loss.advantage_normalization": "batch"}
        _assert_close(receiver.learn(5), donor.learn(5))
        _assert_close(receiver.state(), donor.state())


def test_a_member_of_another_sweep_is_refused_in_one_line(tmp_path: Path) -> None:
    _, receiver = _pair(tmp_path, RMSPROP)
    assert receiver.write()
    with pytest.raises(CheckpointError, match=r"is a member of another sweep \(optimizer\.learning_rate") as refusal:
        _Learner(tmp_path, 2, {**RMSPROP, "sweep": {"loss.entropy_cost": {"draw": "uniform", "low": 0.0, "high": 1.0}}})
    assert "\n" not in str(refusal.value)


def test_a_donor_without_updates_clears_the_receivers_optimizer(tmp_path: Path) -> None:
    _, receiver = _pair(tmp_path, RMSPROP)
    fresh = _Learner(tmp_path, 0, RMSPROP)
    assert fresh.write()
    assert receiver.carry_out(_order(fresh, fresh.settings.own_values))
    assert receiver.state() == fresh.state()
    assert not any(name.startswith("optimizer/") for name in receiver.state())


def test_a_copy_resets_fitness_and_takes_the_donors_ancestry(tmp_path: Path) -> None:
    donor, receiver = _pair(tmp_path, RMSPROP)
    receiver.play(1.0, 2.0, 3.0)
    donor.carry_out(_order(receiver, donor.settings.own_values, number=4))
    assert receiver.carry_out(_order(donor, donor.settings.own_values, number=9, applied=4))
    first = Copy(number=4, receiver=1, donor=2, donor_applied=0, donor_updates=2, donor_env_frames=0, learner_updates=3, env_frames=0)
    second = Copy(number=9, receiver=2, donor=1, donor_applied=4, donor_updates=3, donor_env_frames=0, learner_updates=2, env_frames=0)
    for member in (receiver.link.member, _Learner(tmp_path, 2, RMSPROP).link.member):
        assert member.membership.ancestry == (first, second)
        assert member.fitness is None
        assert member.window.games == []


def test_the_last_point_shows_an_order_carried_out_after_the_point_before(tmp_path: Path) -> None:
    _, receiver = _pair(tmp_path, RMSPROP)
    records = _records(receiver)

    def logged_orders() -> list[int]:
        records.log_point(1.0, learning_rate=1e-3, lineage=1, is_last=True)
        points = (receiver.directory / "metrics.jsonl").read_text().splitlines()
        return [json.loads(point)["population"]["number"] for point in points]

    receiver.statistics.record_consumed(0, 100, policy_lag=1)
    assert logged_orders() == [0]
    assert receiver.carry_out(_order(None, receiver.settings.own_values, number=9))  # no frame is consumed after it
    assert logged_orders() == [0, 9]
    assert logged_orders() == [0, 9]


def _lose(directory: Path) -> None:
    shutil.rmtree(directory / "agents" / "1" / "checkpoints")


def _damage(directory: Path) -> None:
    file = next((directory / "agents" / "1" / "checkpoints").glob("*/optimizer.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(("harm", "said"), [(_lose, "missing"), (_damage, "damaged")])
def test_a_missing_or_damaged_donor_checkpoint_changes_nothing(tmp_path: Path, harm: Any, said: str) -> None:
    donor, receiver = _pair(tmp_path, POPART)
    before = receiver.state()
    harm(tmp_path)
    order = _order(donor, donor.settings.own_values)
    _assert_declined(receiver, order, before, said)


def test_a_replaced_donor_checkpoint_is_declined(tmp_path: Path) -> None:
    donor, receiver = _pair(tmp_path, POPART)
    donor.carry_out(_order(None, receiver.settings.own_values, number=6))
    _assert_declined(receiver, _order(donor, donor.settings.own_values), receiver.state(), "has been replaced")


def test_invalid_settings_are_declined(tmp_path: Path) -> None:
    donor, receiver = _pair(tmp_path, RMSPROP)
    order = _order(donor, {**donor.settings.own_values, "optimizer.epsilon": -1.0})
    _assert_declined(receiver, order, receiver.state(), "optimizer.epsilon")


def test_a_full_disk_declines_the_order_and_later_orders_succeed(tmp_path: Path) -> None:
    donor, receiver = _pair(tmp_path, RMSPROP)
    order = _order(donor, donor.settings.own_values)
    with no_space_beyond(100):
        _assert_declined(receiver, order, receiver.state(), "could not be written")
    assert receiver.carry_out(order.model_copy(update={"number": 8}))
    assert receiver.state() == donor.state()


def _assert_declined(receiver: _Learner, order: Order, before: dict[str, Any], said: str) -> None:
    assert not receiver.carry_out(order)
    assert receiver.state() == before
    assert receiver.link.order is None  # it is not retried forever
    receiver.link.report()
    standing = receiver.client.standing
    assert standing is not None
    assert standing.applied is None
    assert standing.declined is not None
    assert standing.declined.number == order.number
    assert said in standing.declined.reason


class _Killed(BaseException):
    """The process was killed: none of its code runs afterwards."""


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_copy_killed_at_any_step_is_complete_or_did_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    donor, receiver = _pair(tmp_path / "run", POPART)
    old, new = receiver.state(), donor.state()
    outcomes = []
    for step in range(40):
        shutil.rmtree(tmp_path / "try", ignore_errors=True)
        shutil.copytree(tmp_path / "run", tmp_path / "try")
        victim = _Learner(tmp_path / "try", 2, POPART)
        order = _order(donor, donor.settings.own_values)
        killed = False
        with monkeypatch.context() as patch:
            _kill_at(patch, call, step)
            try:
                victim.carry_out(order)
            except _Killed:
                killed = True
        successor = _Learner(tmp_path / "try", 2, POPART)
        assert successor.state() == (new if successor.is_done else old)
        assert successor.statistics.learner_updates == 2  # its own account continues
        outcomes.append(successor.is_done)
        if not killed:
            break
        # The controller does not know that the order was carried out, and repeats it: nothing is done twice, and nothing is left out.
        successor.client.order = order
        assert (successor.link.order is None) is successor.is_done
        assert successor.is_done or successor.carry_out(order)
        assert successor.state() == new
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes == sorted(outcomes)


def _kill_at(patch: pytest.MonkeyPatch, call: str, step: int) -> None:
    """Kill the process instead of its call number ``step`` (from 0)."""
    left = [step]
    original = os.fsync if call == "fsync" else Path.rename

    def dying(*words: Any) -> Any:
        if not left[0]:
            raise _Killed
        left[0] -= 1
        return original(*words)

    patch.setattr(os if call == "fsync" else Path, call, dying)


def test_human_normalised_fitness_is_the_mean_of_capped_task_scores() -> None:
    """(s - random) / (human - random) is 1.5 (capped to 1) for the first task and 0.25 for the second. The mean is over tasks."""
    references = {
        "a": ReferenceScores(task="a", random=10.0, human=20.0, world_record=None, minimal_actions=None),
        "b": ReferenceScores(task="b", random=-4.0, human=4.0, world_record=None, minimal_actions=None),
    }
    window = FitnessWindow(("a", "b"), references, num_games=4)
    for task_id, episode_return in ((0, 99.0), (0, 30.0), (0, 20.0), (0, 25.0)):
        window.add(task_id, episode_return)
    assert window.human_normalised() is None  # task b has no game
    window.add(1, -2.0)
    assert window.games == [(0, 30.0), (0, 20.0), (0, 25.0), (1, -2.0)]
    assert window.human_normalised() == pytest.approx((1.0 + 0.25) / 2)
    window.begin([(0, 12.0), (1, 0.0), (1, 2.0)])
    assert window.human_normalised() is None  # there are too few games
    window.add(1, 4.0)
    assert window.human_normalised() == pytest.approx((0.2 + 0.75) / 2)


def test_games_in_the_fitness_window_survive_a_restart(tmp_path: Path) -> None:
    _, receiver = _pair(tmp_path, RMSPROP)
    receiver.play(1.0, 2.0)
    assert receiver.link.member.fitness is None
    receiver.play(3.0, 4.0)
    receiver.write()
    member = _Learner(tmp_path, 2, RMSPROP).link.member
    assert member.window.games == [(0, 2.0), (0, 3.0), (0, 4.0)]
    assert member.fitness == 3.0
