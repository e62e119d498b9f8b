"""Statistics and ledgers of several shards add up to those of one learner that took everything."""

from __future__ import annotations

import json
import random

from herd_learner.intake.ledger import LEARNER_RESTART, Ledger, LedgerSnapshot
from herd_learner.record.statistics import RunStatistics

from herd.contract.actions import discrete
from herd.contract.spaces import EnvSpec

SPEC = EnvSpec(("pong", "breakout"), (84, 84, 1), 4, discrete(6), 4, 0)


def report(statistics: RunStatistics) -> dict[str, object]:
    return statistics.report(LedgerSnapshot(), session_seconds=2.0, training_seconds=1.0)


def test_the_first_shards_statistics_equal_those_of_one_learner() -> None:
    rng = random.Random(3)
    alone = RunStatistics(SPEC)
    shards = [RunStatistics(SPEC, is_first=rank == 0) for rank in range(3)]
    for _ in range(5):
        for rank, shard in enumerate(shards):
            for _ in range(rng.randrange(4)):
                task, frames, lag = rng.randrange(2), 4 * rng.randrange(1, 21), rng.randrange(9)
                shard.record_consumed(task, frames, lag)
                alone.record_consumed(task, frames, lag)
            if rank or rng.random() < 0.5:
                shard.record_episode(rank % 2, float(rank))
                alone.record_episode(rank % 2, float(rank))
        for shard in shards[1:]:
            shards[0].merge(json.loads(json.dumps(shard.delta())))
    assert report(shards[0]) == report(alone)
    points = [each.point(session_seconds=1.0, frames_per_second=2.0, learning_rate=3.0) for each in (shards[0], alone)]
    assert points[0] == points[1]
    assert shards[0].as_json(1.0) == alone.as_json(1.0)


def test_changes_are_reported_once_and_not_by_the_first_shard() -> None:
    shard = RunStatistics(SPEC, is_first=False)
    shard.record_episode(0, 1.0)
    assert shard.delta() == {"episodes": [(0, 1.0, None)], "consumed": [], "lag": [0.0, 0.0, 0], "replay": None}
    assert shard.delta() == {"episodes": [], "consumed": [], "lag": [0.0, 0.0, 0], "replay": None}
    assert RunStatistics(SPEC).delta() is None


def received(ledger: Ledger, actor: tuple[int, int], sequence: int, generated: int, num_frames: int) -> None:
    ledger.receive(actor, sequence=sequence, generated=generated, frames={0: num_frames - 20, actor[1] - 10: 20})


def test_the_ledger_balances_after_a_change_of_the_shard_count() -> None:
    first, second = Ledger(), Ledger()
    received(first, (0, 11), 1, 100, 100)
    received(second, (0, 12), 1, 80, 80)
    received(second, (0, 12), 2, 160, 80)
    first.consume({0: 80, 1: 20})
    second.consume({0: 60, 2: 20})
    saved = LedgerSnapshot.of_shards([first.snapshot(), second.snapshot()])
    assert (saved.total.generated, saved.total.consumed, saved.total.in_flight, saved.is_balanced) == (260, 180, 80, True)

    saved = LedgerSnapshot.from_json(json.loads(json.dumps(saved.as_json())))
    shards = [Ledger(saved), Ledger(saved.without_totals()), Ledger(saved.without_totals())]
    # The actor continues its stream on another link, now to the third shard; nothing that the second shard took is taken again.
    assert shards[2].on_hello((0, 12), 1) == 2
    received(shards[2], (0, 12), 3, 240, 80)
    after = LedgerSnapshot.of_shards([shard.snapshot() for shard in shards])
    assert (after.total.generated, after.total.consumed, after.total.in_flight) == (340, 180, 80)
    assert after.total.dropped == {LEARNER_RESTART: 80}
    assert after.is_balanced
    # Frames that were in flight are booked as lost for each task, since their tasks are known.
    tasks = {task: (frames.generated, frames.consumed, frames.in_flight, dict(frames.dropped)) for task, frames in after.tasks.items()}
    assert tasks == {
        0: (80 + 3 * 60, 80 + 60, 60, {LEARNER_RESTART: 60}),
        1: (20, 20, 0, {}),
        2: (3 * 20, 20, 20, {LEARNER_RESTART: 20}),
    }
    assert after.accounts == {(0, 11): (1, 100), (0, 12): (3, 240)}
