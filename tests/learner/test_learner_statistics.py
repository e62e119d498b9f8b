from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from herd_learner.intake.ledger import Ledger, LedgerSnapshot
from herd_learner.record.replay_account import ReplayAccount
from herd_learner.record.statistics import MIN_WINDOW_UNROLLS, MIN_WINDOW_UPDATES, RunStatistics

from herd.components.suites.scores import ReferenceScores
from herd.config.services import BanditSettings
from herd.contract.spaces import EnvSpec, discrete
from herd.protocols.bandit.tiling import tiling_of
from herd.protocols.unrolls.metrics import LEARNER_RESTART, MALFORMED
from herd.training.diagnostics import Health, LayerUnits
from herd.training.metrics import RESERVED_COLUMNS, Measured
from herd.training.trainer import UpdateStatistics

SPEC = EnvSpec(("pong", "breakout"), (84, 84, 1), 4, discrete(6), 4, 0)


def _update(gradient_norm: float = 7.0, **changes: float) -> UpdateStatistics:
    numbers = {"loss_total": 1.0, "loss_mine": 2.0, "entropy": 4.0, **changes}
    return UpdateStatistics({name: Measured(value) for name, value in numbers.items()}, gradient_norm, is_finite=True)


def _point(statistics: RunStatistics, session_seconds: float = 2.0, *, is_last: bool = False) -> dict[str, Any]:
    return statistics.point(session_seconds=session_seconds, frames_per_second=123.456, learning_rate=6e-4, is_last=is_last)


def _recorded() -> RunStatistics:
    statistics = RunStatistics(SPEC)
    statistics.record_consumed(0, 80, 2)
    statistics.record_consumed(1, 40, 6)
    statistics.record_consumed(0, 80, 1)
    statistics.count_update()
    statistics.record_update(_update())
    for task_id, episode_return in ((0, -21.0), (1, 5.0), (0, -19.0)):
        statistics.record_episode(task_id, episode_return)
    return statistics


def test_averages_are_none_before_the_first_game_and_update() -> None:
    report = RunStatistics(SPEC).report(Ledger().snapshot(), session_seconds=1.0, training_seconds=0.0)
    assert (report["frames_per_second"], report["policy_lag"]) == (0.0, {"mean": None, "max": None})
    point = _point(RunStatistics(SPEC))
    assert point["episode_return_mean_100"] is None
    assert point["gradient_norm"] is None
    assert (point["policy_lag_mean"], point["policy_lag_max"], point["env_frames"]) == (None, None, 0)
    assert point["tasks"]["pong"] == {"env_frames": 0, "episodes": 0, "episode_return_mean_100": None, "episode_return_sum": 0.0}


def test_no_loss_may_use_a_column_of_a_point() -> None:
    references = {name: ReferenceScores(name, 0.0, 1.0, None, None) for name in SPEC.task_names}
    columns = _point(RunStatistics(SPEC, references=references)).keys() | {"population"}
    assert columns == RESERVED_COLUMNS


def test_a_point_holds_further_values_of_each_task() -> None:
    by_task = {"value_scale": [2.0, math.inf], "value_shift": [0.5, -3.0]}
    point = RunStatistics(SPEC).point(session_seconds=1.0, frames_per_second=1.0, learning_rate=0.1, by_task=by_task)
    assert (point["tasks"]["pong"]["value_scale"], point["tasks"]["pong"]["value_shift"]) == (2.0, 0.5)
    assert (point["tasks"]["breakout"]["value_scale"], point["tasks"]["breakout"]["value_shift"]) == (None, -3.0)


def test_a_point_holds_totals_and_means() -> None:
    statistics = _recorded()
    point = _point(statistics, is_last=True)
    assert json.loads(json.dumps(point)) == point
    assert {name: value for name, value in point.items() if name not in {"tasks", "policy_lag_mean", "episode_return_mean_100"}} == {
        "task_frames_spread": (160 - 40) / 100,
        "wall_seconds": 2.0,
        "env_frames": 200,
        "agent_steps": 50,
        "learner_updates": 1,
        "frames_per_second": 123.5,
        "episodes": 3,
        "policy_lag_max": 6,
        "learning_rate": 6e-4,
        "loss_total": 1.0,
        "loss_mine": 2.0,
        "entropy": 4.0,
        "gradient_norm": 7.0,
        "clipped_share": 0.0,
        "updates_skipped": 0,
        "health": None,
    }
    assert point["policy_lag_mean"] == pytest.approx(3.0)
    assert point["episode_return_mean_100"] == pytest.approx(-35 / 3)
    assert point["tasks"] == {
        "pong": {"env_frames": 160, "episodes": 2, "episode_return_mean_100": -20.0, "episode_return_sum": -40.0},
        "breakout": {"env_frames": 40, "episodes": 1, "episode_return_mean_100": 5.0, "episode_return_sum": 5.0},
    }
    statistics.record_consumed(1, 40, 3)
    assert _point(statistics)["env_frames"] == 240


def test_the_report_compares_the_first_games_with_the_last() -> None:
    references = {"pong": ReferenceScores("pong", -20.7, 14.6, 21.0, 6)}
    statistics = RunStatistics(SPEC, references=references)

    def progress(of: RunStatistics) -> Any:
        return of.report(Ledger().snapshot(), session_seconds=1.0, training_seconds=1.0)["tasks"]["pong"].get("progress")

    statistics.record_episode(0, 1.0)
    assert progress(statistics) is None  # a single game has no progress
    for episode_return in range(2, 6):
        statistics.record_episode(0, float(episode_return))
    assert progress(statistics) == {"games": 2, "mean_first": 1.5, "mean_last": 4.5, "random": -20.7}
    resumed = RunStatistics(SPEC, json.loads(json.dumps(statistics.as_json(1.0))), references=references)
    for episode_return in range(6, 301):
        resumed.record_episode(0, float(episode_return))
    assert progress(resumed) == {"games": 100, "mean_first": 50.5, "mean_last": 250.5, "random": -20.7}


def test_the_lag_of_a_point_is_that_of_many_unrolls() -> None:
    """The first unrolls were made while nothing was learned, and the last window of a run may hold a few unrolls or none."""
    statistics = RunStatistics(SPEC)

    def lag(num_unrolls: int, updates: int, *, is_last: bool = False) -> tuple[float | None, float | None]:
        for _ in range(num_unrolls):
            statistics.record_consumed(0, 80, updates)
        point = statistics.point(session_seconds=1.0, frames_per_second=None, learning_rate=1.0, is_last=is_last)
        return point["policy_lag_mean"], point["policy_lag_max"]

    assert lag(8, 0) == (None, None)
    assert lag(MIN_WINDOW_UNROLLS - 8, 2) == (pytest.approx(2 * (1 - 8 / MIN_WINDOW_UNROLLS)), 2)
    assert lag(MIN_WINDOW_UNROLLS, 3) == (3, 3)
    assert lag(20, 9) == (3, 3)
    assert lag(0, 0, is_last=True) == (pytest.approx((3 * MIN_WINDOW_UNROLLS + 20 * 9) / (MIN_WINDOW_UNROLLS + 20)), 9)


def test_a_short_run_has_the_lag_of_all_its_unrolls() -> None:
    statistics = _recorded()
    assert _point(statistics)["policy_lag_mean"] is None
    assert statistics.last_point_is_due  # although no frame was consumed since
    statistics.record_consumed(0, 80, 3)
    last = statistics.point(session_seconds=2.0, frames_per_second=1.0, learning_rate=1.0, is_last=True)
    assert (last["policy_lag_mean"], last["policy_lag_max"]) == (3.0, 6)
    assert not statistics.last_point_is_due
    statistics.record_consumed(0, 80, 3)
    assert statistics.last_point_is_due


def test_points_count_skipped_updates_and_the_newest_ones_in_a_row() -> None:
    statistics = RunStatistics(SPEC)
    counts = []
    for skipped in (3, 0, 2):
        for _ in range(skipped):
            statistics.record_update(replace(_update(), is_finite=False))
        counts.append((_point(statistics)["updates_skipped"], statistics.num_skipped_in_a_row))
    assert counts == [(3, 3), (0, 3), (2, 5)]
    statistics.record_update(_update())
    assert statistics.num_skipped_in_a_row == 0


def test_points_hold_the_newest_health_and_the_clipped_share() -> None:
    statistics = RunStatistics(SPEC)
    health = Health(0.01, 0.8, None, (LayerUnits("filters", 16, 7, 2),))
    for is_clipped in (True, False, True, True, False) * (MIN_WINDOW_UPDATES // 5):
        statistics.record_update(replace(_update(), is_clipped=is_clipped, health=health))
    point = _point(statistics)
    assert json.loads(json.dumps(point)) == point
    assert point["clipped_share"] == pytest.approx(3 / 5)
    assert point["health"] == {
        "update_kl": 0.01,
        "effective_sample_size": 0.8,
        "explained_variance": None,
        "layers": [{"kind": "filters", "total": 16, "dead": 7, "always_on": 2}],
    }
    for _ in range(MIN_WINDOW_UPDATES):
        statistics.record_update(_update())
    after = _point(statistics)
    assert (after["clipped_share"], after["health"]) == (0.0, point["health"])
    statistics.record_update(_update())
    adams = statistics.point(session_seconds=2.0, frames_per_second=1.0, learning_rate=6e-4, clipping_shortens=False)
    assert adams["clipped_share"] is None
    report = statistics.report(Ledger().snapshot(), session_seconds=1.0, training_seconds=1.0)
    assert report["health"] == point["health"]


def test_nan_and_infinity_become_null_in_points() -> None:
    statistics = RunStatistics(SPEC)
    statistics.record_update(_update(math.inf, loss_total=math.nan, entropy=-math.inf))
    point = _point(statistics)
    json.dumps(point, allow_nan=False)
    assert [point[name] for name in ("loss_total", "loss_mine", "entropy", "gradient_norm")] == [None, 2.0, None, None]


def test_counters_survive_a_restart_and_session_values_reset() -> None:
    first = _recorded()
    second = RunStatistics(SPEC, json.loads(json.dumps(first.as_json(session_seconds=10.0))))
    assert second.as_json(0.0) == first.as_json(10.0)
    assert (second.env_frames, second.learner_updates, second.episodes, second.mean_return) == (200, 1, 3, first.mean_return)
    second.record_consumed(0, 80, 4)
    assert _point(second, 2.5)["wall_seconds"] == 12.5
    assert second.tasks["pong"].env_frames == 240
    for number in range(99):
        second.record_episode(0, float(number))
    assert second.mean_return == pytest.approx((-19.0 + sum(range(99))) / 100)
    report = second.report(Ledger().snapshot(), session_seconds=2.5, training_seconds=2.0)
    assert (report["env_frames"], report["frames_per_second"], report["wall_seconds"]) == (280, 40.0, 12.5)


def test_the_report_adds_up_frames_and_episodes() -> None:
    ledger = Ledger()
    ledger.receive((0, 1), sequence=1, generated=240, frames={0: 160, 1: 80})
    ledger.consume({0: 160, 1: 40})
    ledger.refuse((0, 1), sequence=2, generated=250, num_frames=10, reason=MALFORMED)
    report = _recorded().report(ledger.snapshot(), session_seconds=5.0, training_seconds=4.0)
    assert json.loads(json.dumps(report)) == report
    assert report["accounting"] == {
        "generated": 250,
        "consumed": 200,
        "dropped": {MALFORMED: 10},
        "in_flight": 40,
        "unattributed": {"generated": 10, "dropped": {MALFORMED: 10}},
    }
    assert [task["accounting"] for task in report["tasks"].values()] == [
        {"generated": 160, "consumed": 160, "dropped": {}, "in_flight": 0},
        {"generated": 80, "consumed": 40, "dropped": {}, "in_flight": 40},
    ]
    assert report["frames_per_second"] == 50.0
    assert report["policy_lag"] == {"mean": 3.0, "max": 6}
    assert sum(task["env_frames"] for task in report["tasks"].values()) == report["env_frames"] == report["accounting"]["consumed"]
    assert report["tasks"]["pong"]["episode_return"] == {"mean_last_100": -20.0, "episodes": 2}


def test_points_and_report_hold_human_normalised_scores() -> None:
    """Pong: random -20, human 10. Breakout: random 2, human 32. A third game has no human score."""
    references = {"pong": ReferenceScores("pong", -20.0, 10.0, None, None), "breakout": ReferenceScores("breakout", 2.0, 32.0, None, None)}
    statistics = RunStatistics(replace(SPEC, task_names=("pong", "breakout", "mine")), references=references)
    statistics.record_episode(0, 25.0)  # the score is 1.5, capped to 1
    statistics.record_episode(2, 9.0)
    point = _point(statistics)
    assert point["human_normalised_mean_capped"] is None  # breakout's first game has not ended
    assert [task.get("human_normalised", "none") for task in point["tasks"].values()] == [1.5, None, "none"]
    statistics.record_episode(1, 5.0)
    statistics.record_episode(1, 11.0)  # the mean is 8, the score 0.2
    report = statistics.report(LedgerSnapshot(), session_seconds=1.0, training_seconds=1.0)
    for place in (_point(statistics), report):
        assert place["human_normalised_mean_capped"] == pytest.approx(0.6)
        assert place["tasks"]["breakout"]["human_normalised"] == pytest.approx(0.2)


def test_the_frame_spread_is_relative_to_the_mean() -> None:
    statistics = RunStatistics(SPEC)
    assert _point(statistics)["task_frames_spread"] is None
    statistics.record_consumed(0, 2**53 + 1, 0)
    statistics.record_consumed(1, 2**53 - 1, 0)
    assert _point(statistics)["task_frames_spread"] == 2 / 2**53
    assert statistics.tasks["pong"].env_frames == 2**53 + 1
    alone = RunStatistics(replace(SPEC, task_names=("pong",)))
    alone.record_consumed(0, 80, 0)
    assert "task_frames_spread" not in _point(alone)


def test_the_point_of_the_first_hundred_games_is_due_once() -> None:
    """Also if the learner restarts before or after it."""
    statistics = RunStatistics(SPEC)
    due = []
    for game in range(103):
        if game in (50, 100):
            statistics.logged()  # the first is a point in between, due by time
        if game in (99, 101):
            statistics = RunStatistics(SPEC, json.loads(json.dumps(statistics.as_json(1.0))))
        statistics.record_episode(game % 2, float(game))
        due.append(statistics.start_is_due)
    assert [game for game, is_due in enumerate(due) if is_due] == [99]


# -- temperatures and sample reuse


def test_returns_by_temperature_are_reported_and_survive_a_restart() -> None:
    tiling = tiling_of(BanditSettings())
    statistics = RunStatistics(SPEC, tiling=tiling)
    for inverse, episode_return in ((0.0, 1.0), (0.05, 2.0), (50.0, -4.0), (None, 9.0)):
        statistics.record_episode(0, episode_return, inverse)
    state = json.loads(json.dumps(statistics.as_json(1.0)))
    statistics = RunStatistics(SPEC, state, tiling)
    report = statistics.report(LedgerSnapshot(), session_seconds=1.0, training_seconds=1.0)
    low, high = report["tasks"]["pong"]["temperatures"]
    assert (low["tile"], low["episodes"], low["return_sum"], low["mean_return"]) == (0, 2, 3.0, 1.5)
    assert low["inverse_temperature"] == pytest.approx([0.0, np.expm1(0.1)])
    assert (high["tile"], high["episodes"], high["mean_return"]) == (tiling.num_tiles - 1, 1, -4.0)
    assert high["inverse_temperature"][1] == pytest.approx(50.0)
    coarse = RunStatistics(SPEC, state, tiling_of(BanditSettings(tile_accuracy=0.2)))
    report = coarse.report(LedgerSnapshot(), session_seconds=1.0, training_seconds=1.0)
    assert report["tasks"]["pong"]["temperatures"] == []  # these tiles are other temperatures
    assert coarse.tasks["pong"].episodes == 4


def test_the_number_of_uses_of_each_sample_is_reported() -> None:
    statistics = RunStatistics(SPEC)
    for _ in range(4):
        statistics.record_consumed(0, 80, 1)
    statistics._session_trained += 8  # two updates on these four unrolls
    assert statistics.report(LedgerSnapshot(), session_seconds=1.0, training_seconds=1.0)["sample_reuse"] == 2.0


# -- replay


def test_the_report_holds_what_was_measured_of_replay() -> None:
    account = ReplayAccount()
    assert account.report() == {"fraction": None, "staleness": None}
    account.record((4, 4), [])
    assert account.report() == {"fraction": 0.5, "staleness": None}
    account.record((0, 12), [3, 5])
    account.record((8, 8), [10])
    assert account.report() == {"fraction": pytest.approx(24 / 36), "staleness": {"mean": pytest.approx(6.0), "max": 10}}


def test_replay_values_of_all_shards_are_merged_once() -> None:
    first, second = ReplayAccount(), ReplayAccount()
    first.record((2, 6), [4])
    second.record((1, 3), [8, 9])
    for _ in range(2):
        first.merge(json.loads(json.dumps(second.delta())))
    assert first.report() == {"fraction": pytest.approx(9 / 12), "staleness": {"mean": pytest.approx(7.0), "max": 9}}


# -- several shards add up to one learner that took everything


def _report(statistics: RunStatistics) -> dict[str, object]:
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
    assert _report(shards[0]) == _report(alone)
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
