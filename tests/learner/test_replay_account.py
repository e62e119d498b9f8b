"""The replay section of report.json, computed from what updates and shards report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from herd_learner.record.replay_account import ReplayAccount

from herd.components.losses.api import REJECTED_REPLAYED
from herd.training.metrics import Measured
from herd.training.trainer import UpdateStatistics


def _update(rejected: float | None) -> UpdateStatistics:
    losses = {"loss_total": Measured(1.0)} | ({} if rejected is None else {REJECTED_REPLAYED: Measured(rejected)})
    return UpdateStatistics(losses, 1.0, is_finite=True)


def test_the_report_holds_the_measured_values() -> None:
    account = ReplayAccount()
    account.record((4, 0), [])
    account.record((4, 12), [3, 5])
    account.record((4, 12), [10])
    for rejected in (None, 0.25, 0.75):  # before the minimum there are no rows to reject
        account.gated(_update(rejected))
    account.waited(0.5)
    account.waited(1.5)
    assert account.report(training_seconds=100.0) == {
        "fraction": pytest.approx(24 / 36),
        "rejected_share": pytest.approx(0.5),
        "staleness": {"mean": pytest.approx(6.0), "max": 10},
        "waited_share": pytest.approx(0.02),
    }


def test_values_without_measurements_are_none() -> None:
    account = ReplayAccount()
    assert account.report(0.0) == {"fraction": None, "rejected_share": None, "staleness": None, "waited_share": None}
    account.record((4, 4), [])
    account.gated(_update(None))
    report = account.report(1.0)
    assert (report["fraction"], report["rejected_share"], report["staleness"]) == (0.5, None, None)


def test_the_first_shard_adds_up_each_shards_changes_once() -> None:
    first, second = ReplayAccount(2), ReplayAccount(2)
    first.record((2, 6), [4])
    first.gated(_update(0.5))
    second.record((1, 3), [8, 9])
    second.gated(_update(0.5))
    second.waited(4.0)
    delta: Any = json.loads(json.dumps(second.delta()))
    first.merge(delta)
    first.merge(json.loads(json.dumps(second.delta())))
    report = first.report(training_seconds=10.0)
    assert report["fraction"] == pytest.approx(9 / 12)
    assert report["rejected_share"] == pytest.approx(0.5)  # the value already covers all shards
    assert report["staleness"] == {"mean": pytest.approx(7.0), "max": 9}
    assert report["waited_share"] == pytest.approx(4.0 / 20.0)
