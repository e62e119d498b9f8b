"""Which tensors each shard publishes, and that nothing unusable is published."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from herd_learner.group.collectives import ShardGroup, share
from herd_learner.group.rendezvous import Place
from herd_learner.group.turns import Turn, VersionSchedule
from herd_learner.loop import Learner
from herd_learner.publication import Publication, deal_tensors
from hypothesis import given
from hypothesis import strategies as st

from tests.training.small_runs import run_of, trainer_of


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shares_add_up_and_differ_by_at_most_one(total: int, size: int) -> None:
    parts = [share(total, rank, size) for rank in range(size)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1
    assert parts == sorted(parts, reverse=True)


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 10**9), max_size=30), st.integers(1, 8))
def test_tensors_are_dealt_once_in_slices_of_similar_size(num_bytes: dict[str, int], size: int) -> None:
    slices = deal_tensors(num_bytes, size)
    assert sorted(name for names in slices for name in names) == sorted(num_bytes)
    largest = max(num_bytes.values(), default=0)
    heaviest = max(sum(num_bytes[name] for name in names) for names in slices)
    assert heaviest <= sum(num_bytes.values()) / size + largest


def test_dealing_does_not_depend_on_the_order_of_tensors() -> None:
    num_bytes = {"a": 3, "b": 3, "c": 3, "d": 1}
    assert deal_tensors(num_bytes, 2) == deal_tensors(dict(reversed(num_bytes.items())), 2) == [["a", "c"], ["b", "d"]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("poison", [float("inf"), float("nan")])
def test_weights_that_are_not_finite_are_not_published(poison: float, dtype: str) -> None:
    settings = run_of(learner={"batch_size": 4, "weights_dtype": dtype})
    trainer, published = trainer_of(settings), list[tuple[int, int]]()
    io: Any = SimpleNamespace(publish=lambda lineage, updates, _payload: published.append((lineage, updates)), is_published=True)
    telemetry: Any = SimpleNamespace(set_weights_version=lambda *_: None)
    publication = Publication(settings, trainer, ShardGroup(Place(0, 1)), io, telemetry)
    publication.publish(1, 0)
    assert (published, publication.is_unusable) == ([(1, 0)], False)
    with torch.no_grad():
        trainer.agent.value_head.bias[0] = poison
    publication.publish(1, 1)
    assert (published, publication.is_unusable) == ([(1, 0)], True)


def test_a_version_that_waited_for_the_one_before_needs_no_further_update() -> None:
    """While the parameter server is away, updates go on; then all unrolls may be too old, and only a new version brings fresh ones."""
    learner = mock.MagicMock(_population=None)
    learner._io.failure = learner._batches.shared = None
    learner._settings.learner.log_interval_seconds = learner._settings.learner.checkpoint_interval_seconds = 1e9
    learner._settings.population.report_interval_seconds = 1e9
    learner._schedule = VersionSchedule(0, is_first=True, num_shards=1)
    learner._schedule.is_due = True
    learner._agree.side_effect = [Turn(is_ready=False, may_publish=False), Turn(is_ready=False, may_publish=True), Turn(stop=True)]
    published: list[int] = []
    learner._publish.side_effect = lambda: published.append(learner._agree.call_count)
    Learner.train(learner, mock.MagicMock())
    assert published == [0, 2]
