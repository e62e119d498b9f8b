"""How shards meet, without other processes: a group of one that serves its own store."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from herd_learner import loop as learner
from herd_learner.group import collectives as group
from herd_learner.group import rendezvous
from herd_learner.group.rendezvous import Membership, Place, join, place_of, shared_settings
from pydantic import ValidationError
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from herd.components.user_code import UserCodeError
from herd.config.run import RunSettings
from herd.service.identity import Identity
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError
from herd.telemetry.telemetry import Telemetry
from tests.ipv6 import needs_ipv6
from tests.system.whole_runs import free_ports

CATCH = {"env": {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ["catch"]}, "network": {"torso": "mlp"}}


class Attempts:
    """Stands in for the store's constructor: the first ``num_failures`` attempts fail."""

    def __init__(self, num_failures: int) -> None:
        self.num_failures = num_failures
        self.count = 0

    def __call__(self, _place: Place, **_: bool) -> object:
        self.count += 1
        if self.count <= self.num_failures:
            raise RuntimeError("The server socket has failed to bind: Address already in use")
        return HashStore()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)])
def test_the_first_shard_retries_with_the_store_it_serves(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    read, failures = rendezvous._read, [RuntimeError("Connection reset")]

    def fail_once(store: Store, key: str) -> str | None:
        if failures:
            raise failures.pop()
        return read(store, key)

    monkeypatch.setattr(rendezvous, "_read", fail_once)
    (port,) = free_ports(1)
    attempts = iter(range(10))
    place = place_of(2, {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": str(port)})
    membership = join(replace(place, size=1), lambda: next(attempts, None) is not None, {}, {})
    assert membership.place.port == port
    assert not failures


def test_a_shard_with_other_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such shards would form a group, and train apart."""
    store = HashStore()
    monkeypatch.setattr(rendezvous, "_connect", lambda _place, **_: store)
    first, second = (Place(rank, 2, "h", 1) for rank in range(2))
    settings = shared_settings(RunSettings.model_validate(CATCH))
    with ThreadPoolExecutor(1) as threads:
        deadline = time.monotonic() + 30.0
        joining = threads.submit(join, first, lambda: time.monotonic() < deadline, settings, {})
        for key, theirs, told in (
            ("optimizer.learning_rate", 0.25, "optimizer.learning_rate is 0.25, but 0.0006 at shard 0"),
            ("loss.entropy_cost", None, r"loss\.entropy_cost is not set, but 0\.01 at shard 0"),
            ("loss.q_cost", 10.0, r"loss\.q_cost is 10\.0, but not set at shard 0"),
        ):
            others = {**settings, key: theirs} if theirs is not None else {name: settings[name] for name in settings if name != key}
            with pytest.raises(BadInputError, match=f"{told}: start all shards with the same settings"):
                join(second, lambda: time.monotonic() < deadline, others, {})
        joined = join(second, lambda: time.monotonic() < deadline, settings, {})
        assert joining.result().generation == joined.generation


def test_settings_of_one_process_may_differ_between_shards() -> None:
    ours = RunSettings.model_validate(CATCH)
    theirs = RunSettings.model_validate(
        {
            **CATCH,
            "run_dir": "elsewhere",
            "resume": True,
            "learner": {"device": "cpu", "threads": 3},
            "logging": {"project": "other"},
            "stop": {"wall_seconds": 57.494},
        }
    )
    assert shared_settings(ours) == shared_settings(theirs)
    assert shared_settings(ours) != shared_settings(RunSettings.model_validate({**CATCH, "learner": {"batch_size": 48}}))


def test_join_waits_until_the_port_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(3)
    monkeypatch.setattr(rendezvous, "_connect", attempts)
    join(Place(0, 1, "127.0.0.1", 1), lambda: True, {}, {})
    assert attempts.count == 4


def test_a_port_that_stays_in_use_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_connect", Attempts(10**9))
    monkeypatch.setattr(rendezvous, "LISTEN_SECONDS", 0.05)
    with pytest.raises(BadInputError, match="MASTER_PORT 17 is in use"):
        join(Place(0, 1, "127.0.0.1", 17), lambda: True, {}, {})


@pytest.mark.parametrize("count", ["0", "3"])
def test_the_restart_count_does_not_change_the_meeting_key(monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    store = HashStore()
    monkeypatch.setattr(rendezvous, "_connect", lambda _place, **_: store)
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "run",
        "TORCHELASTIC_RESTART_COUNT": count,
    }
    place = place_of(2, variables)
    looks = iter(range(3))
    with pytest.raises(rendezvous.NotGatheredError):
        join(place, lambda: next(looks, None) is not None, {}, variables)
    assert store.check(["run/generation"])


def test_a_connection_lost_before_the_group_starts_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_membership: Membership) -> Store:
        raise RuntimeError("Connection reset by peer")

    def end(reason: str) -> None:
        raise SystemExit(reason)

    place = Place(1, 2, "127.0.0.1", 1)
    monkeypatch.setattr(group, "place_of", lambda *_: place)
    monkeypatch.setattr(group, "join", lambda *_: Membership(place, "run", "generation", HashStore()))
    monkeypatch.setattr(group, "connect_again", gone)
    monkeypatch.setattr(group, "end_process", end)
    with pytest.raises(SystemExit, match="Connection reset by peer"):
        group.join_group(2, device=torch.device("cpu"), settings={}, timeout_seconds=1.0, go_on=lambda: True)


def test_an_error_while_creating_the_learner_checks_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Exception] = []

    class Broken(group.ShardGroup):
        def end_if_broken(self, error: Exception) -> None:
            asked.append(error)

    def make(*_: object) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(learner, "join_group", lambda *_, **__: Broken(Place(0, 1)))
    monkeypatch.setattr(learner, "Learner", make)
    telemetry = Telemetry("learner", "run")
    stop: Any = False
    process: Any = SimpleNamespace(settings=RunSettings.model_validate(CATCH), telemetry=telemetry)
    try:
        with pytest.raises(RuntimeError, match="closed by peer"):
            learner._learn(process, stop, torch.device("cpu"), torch.float32)
    finally:
        telemetry.close()
    assert len(asked) == 1


def test_a_custom_loss_that_is_refused_at_the_first_update_is_invalid_input() -> None:
    training = mock.MagicMock()
    training.__enter__.return_value.train.side_effect = UserCodeError("popart needs targets")
    with (
        ServiceProcess("learner", RunSettings(name="run"), Identity()) as process,
        mock.patch.object(learner, "join_group"),
        mock.patch.object(learner, "_make", return_value=training),
        pytest.raises(BadInputError, match=r"^popart needs targets$"),
    ):
        learner._learn(process, False, torch.device("cpu"), torch.float32)


def test_lockstep_requires_one_learner() -> None:
    with pytest.raises(ValidationError, match=r"actor\.lockstep needs learner\.shards 1, not 2"):
        RunSettings.model_validate({**CATCH, "learner": {"shards": 2}, "actor": {"lockstep": True}})
    with pytest.raises(ValidationError, match=r"actor\.lockstep needs agents 1, not 3"):
        RunSettings.model_validate({**CATCH, "agents": 3, "actor": {"lockstep": True}})
