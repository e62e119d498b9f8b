from __future__ import annotations

import json
import math
import os
import queue
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from herd.config.run import StopSettings
from herd.launch import readings as launch_readings
from herd.launch.readings import ChildState, Readings, Watcher, metrics_url, read, work_done
from herd.protocols import catalogue
from herd.telemetry import Telemetry, metrics
from herd.telemetry.scrape import Samples, ScrapeError, parse
from herd.view.series import Rate
from herd.view.snapshot import AgentsSnapshotMaker, RunSnapshot, SnapshotMaker

CHILDREN = [ChildState("learner-0", "running", 1, 0), ChildState("actor-0", "running", 2, 1), ChildState("actor-1", "running", 3, 0)]

READ_FROM_THE_PROCESS = {
    metrics.PROCESS_INFO,
    metrics.PROCESS_RESIDENT_MEMORY,
    metrics.PROCESS_CPU,
    metrics.HEARTBEAT_AGE,
    metrics.WEIGHTS_AGE,
}


def samples(**values: float) -> Samples:
    return {(name, ()): value for name, value in values.items()}


def readings(at: float, frames: float, point: Mapping[str, object] | None = None, **learner: float) -> Readings:
    tasks: Samples = {
        ("herd_learner_episode_return_mean_100", (("task", "pong"),)): -20.5,
        ("herd_learner_episodes_total", (("task", "pong"),)): 4.0,
        ("herd_learner_episode_return_mean_100", (("task", "qbert"),)): math.nan,
    }
    return Readings(
        at=at,
        samples={
            "learner-0": {**samples(herd_learner_env_frames_total=frames, **learner), **tasks},
            "actor-0": samples(herd_actor_blocked_seconds_total=at * 0.5, herd_process_cpu_seconds_total=at * 0.9),
            "actor-1": samples(
                herd_actor_blocked_seconds_total=at * 0.3, herd_process_resident_memory_bytes=2.0**20, herd_weights_updates=at * 10
            ),
        },
        point=point or {},
    )


def test_rates_cover_a_window_and_reset_with_the_process() -> None:
    rate = Rate(window_seconds=10.0)
    assert rate.per_second is None
    for second in range(31):
        rate.add(float(second), 100.0 * min(second, 20) + 7)
    assert rate.per_second == pytest.approx(0.0)  # nothing during the last ten seconds
    rate.add(31.0, 5.0)
    assert rate.per_second is None
    rate.add(32.0, 9.0)
    rate.add(32.0, 900.0)  # the same scrape, seen twice
    assert rate.per_second == pytest.approx(4.0)


def test_agents_are_shown_individually_and_in_total() -> None:
    children = [ChildState(f"learner-{number}", "running", number, 0) for number in range(3)] + CHILDREN[1:]
    maker = AgentsSnapshotMaker(StopSettings(env_frames=1000), {"learner-0": 0, "learner-1": 0, "learner-2": 1})

    def frames(*counters: float) -> dict[str, Samples]:
        return {
            f"learner-{number}": samples(herd_learner_env_frames_total=counter, herd_learner_starved_seconds_total=counter / 1000)
            for number, counter in enumerate(counters)
        }

    points = ({"env_frames": 0, "learner_updates": 3}, {"env_frames": 0, "learner_updates": 5})
    maker.make(Readings(1.0, {**readings(1.0, 0.0).samples, **frames(0.0, 0.0, 0.0)}, points[0], points[1:]), children, 1.0)
    shared = {name: each for name, each in readings(2.0, 0.0).samples.items() if name.startswith("actor")}
    picture = maker.make(Readings(2.0, {**shared, **frames(100.0, 150.0, 600.0)}, points[0], points[1:]), children, 2.0)
    assert [agent.env_frames for agent in picture.agents] == [250.0, 600.0]
    assert [agent.frames_per_second for agent in picture.agents] == [250.0, 600.0]
    assert [agent.learner_updates for agent in picture.agents] == [3, 5]
    assert [agent.progress for agent in picture.agents] == [0.25, 0.6]
    assert (picture.env_frames, picture.frames_per_second, picture.learner_updates) == (850.0, 850.0, 8)
    assert (picture.progress, picture.eta_seconds) == (0.25, 3.0)
    assert picture.starved_share == pytest.approx(0.6)
    assert picture.blocked_share == pytest.approx(0.4)
    assert [child.name for child in picture.children] == [child.name for child in children]

    # Agent 1 reached its stop: its learner has ended, and its last point holds the final numbers.
    ended = [*children[:2], ChildState("learner-2", "ended", None, 0), *children[3:]]
    over = Readings(3.0, {**shared, **frames(200.0, 250.0)}, points[0], ({"env_frames": 1000, "learner_updates": 9},))
    picture = maker.make(over, ended, 3.0)
    assert [agent.env_frames for agent in picture.agents] == [450.0, 1000.0]
    assert picture.env_frames == 1450.0
    assert picture.frames_per_second == pytest.approx(225.0)  # only agent 0 contributes, over two seconds


def test_a_snapshot_holds_the_values_of_a_run() -> None:
    maker = SnapshotMaker(StopSettings(env_frames=10_000, wall_seconds=100.0))
    maker.make(readings(1.0, 0.0, herd_learner_starved_seconds_total=0.0), CHILDREN, 1.0)
    later: dict[str, Any] = {
        "herd_learner_starved_seconds_total": 0.5,
        "herd_learner_queue_unrolls": 20.0,
        "herd_learner_queue_capacity_unrolls": 64.0,
    }
    lag: dict[str, Any] = {"herd_learner_policy_lag_updates_sum": 30.0, "herd_learner_policy_lag_updates_count": 20.0}
    first = readings(1.5, 500.0, herd_learner_policy_lag_updates_sum=0.0, herd_learner_policy_lag_updates_count=0.0)
    maker.make(first, CHILDREN, 1.5)
    picture = maker.make(readings(3.0, 2000.0, **later, **lag), CHILDREN, 3.0)

    assert picture.env_frames == 2000.0
    assert picture.frames_per_second == pytest.approx(1000.0)
    assert picture.starved_share == pytest.approx(0.25)
    assert picture.blocked_share == pytest.approx(0.4)  # mean of the two actors
    assert picture.bottleneck == "actors wait for the learner"
    assert picture.policy_lag == pytest.approx(1.5)
    assert (picture.queue_unrolls, picture.queue_capacity) == (20.0, 64.0)
    # 8,000 frames are left at 1,000/s, which takes less than the 97 s left on the wall clock.
    assert picture.eta_seconds == pytest.approx(8.0)
    assert picture.progress == pytest.approx(0.2)
    assert [(task.name, task.episodes, task.episode_return) for task in picture.tasks] == [("pong", 4, -20.5), ("qbert", 0, None)]
    learner, actor, other = picture.children
    assert (learner.resident_bytes, learner.cpu_cores) == (None, None) or learner.cpu_cores == 0.0
    assert actor.cpu_cores == pytest.approx(0.9)
    assert (actor.restarts, other.resident_bytes) == (1, 2.0**20)
    assert (actor.weights_updates, other.weights_updates) == (None, 30.0)


@pytest.mark.parametrize(
    ("stop", "progress", "eta_seconds"),
    [
        (StopSettings(env_frames=10**9, wall_seconds=100.0), 0.3, 70.0),  # the wall clock ends first
        (StopSettings(), None, None),
    ],
)
def test_progress_follows_the_stop_that_comes_first(stop: StopSettings, progress: float | None, eta_seconds: float | None) -> None:
    picture = SnapshotMaker(stop).make(readings(1.0, 0.0), CHILDREN, 30.0)
    assert (picture.progress, picture.eta_seconds) == (progress, eta_seconds)


def test_the_phase_names_what_a_start_waits_for() -> None:
    maker = SnapshotMaker(StopSettings(wall_seconds=100.0))

    def phase(at: float, *answering: str, frames: float = 0.0, queued: float = 0.0, states: Sequence[ChildState] = CHILDREN) -> str:
        known = readings(at, frames, herd_learner_queue_unrolls=queued).samples
        picture = maker.make(Readings(at, {name: known[name] for name in answering}), states, at + 40.0, 0.0)
        assert (picture.progress, picture.eta_seconds) == (0.0, 100.0)  # the time of the start is not counted
        assert not picture.phase or picture.bottleneck == picture.phase
        return picture.phase

    names = [child.name for child in CHILDREN]
    assert phase(1.0) == "starting: learner-0, actor-0, actor-1 are loading"
    assert phase(2.0, "learner-0", "actor-1") == "starting: actor-0 is loading"
    assert phase(3.0, *names) == "starting: waiting for the actors' first unrolls"
    assert phase(4.0, *names, queued=3.0) == "starting: waiting for a whole batch"
    again = [CHILDREN[0], ChildState("actor-0", "restarting", None, 1), CHILDREN[2]]
    assert phase(5.0, "learner-0", "actor-1", states=again) == "starting: actor-0 is restarting"
    many = [ChildState(f"actor-{number}", "running", number, 0) for number in range(9)]
    assert phase(6.0, states=many) == "starting: actor-0, actor-1, actor-2 and 6 more are loading"
    assert phase(7.0, *names, frames=640.0) == ""
    assert phase(8.0, "actor-1", states=again) == ""  # a process that restarts later does not bring back the starting phase


def test_the_last_snapshot_keeps_values_from_before_the_stop() -> None:
    maker = SnapshotMaker(StopSettings())
    lag: dict[str, Any] = {"herd_learner_policy_lag_updates_sum": 30.0, "herd_learner_policy_lag_updates_count": 20.0}
    none: dict[str, Any] = dict.fromkeys(lag, 0.0)
    maker.make(readings(1.0, 0.0, **none), CHILDREN, 1.0)
    running = maker.make(readings(2.0, 500.0, herd_learner_queue_unrolls=7.0, herd_learner_starved_seconds_total=0.1, **lag), CHILDREN, 2.0)
    maker.make(Readings(at=2.5), CHILDREN, 2.5)  # the learner ends by itself and no longer answers
    stopping = [ChildState("learner-0", "stopping", 1, 0), *CHILDREN[1:]]
    picture = maker.make(Readings(at=3.0), stopping, 3.0)
    assert picture.bottleneck == "stopping: the learner is writing its checkpoint"
    assert (picture.frames_per_second, picture.policy_lag, picture.queue_unrolls) == (500.0, 1.5, 7.0)
    assert (picture.starved_share, picture.blocked_share) == (running.starved_share, running.blocked_share)
    late = [ChildState("learner-0", "stopped", None, 0), ChildState("actor-0", "stopping", 2, 0), ChildState("actor-1", "stopped", None, 0)]
    assert maker.make(Readings(at=4.0), late, 4.0).bottleneck == "stopping: waiting for actor-0"
    over = maker.make(Readings(at=5.0), [ChildState(child.name, "stopped", None, 0) for child in CHILDREN], 5.0)
    assert (over.bottleneck, over.frames_per_second) == ("stopped", 500.0)


def test_the_work_of_a_dead_child_is_not_that_of_its_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a child that dies again and again without working would seem to make progress."""
    asked, answer = queue.SimpleQueue[Mapping[str, int]](), queue.SimpleQueue[Readings]()

    def slow_read(_run_dir: Path, pids: Mapping[str, int], **_: object) -> Readings:
        asked.put(pids)
        return answer.get()

    monkeypatch.setattr(launch_readings, "read", slow_read)
    watcher = Watcher(tmp_path, interval_seconds=0.0)
    watcher.watch({"actor-0": 5})
    while asked.get() != {"actor-0": 5}:
        answer.put(Readings())
    watcher.watch({"actor-0": 6})  # it died and was replaced while it was being read
    answer.put(Readings(samples={"actor-0": samples(herd_actor_env_frames_total=7.0)}))
    assert asked.get() == {"actor-0": 6}
    assert (watcher.most_work(5), watcher.most_work(6)) == (7.0, 0.0)
    answer.put(Readings(samples={"actor-0": samples(herd_actor_env_frames_total=2.0)}))
    asked.get()
    assert (watcher.most_work(5), watcher.most_work(6)) == (0.0, 2.0)
    answer.put(Readings())
    watcher.close()


def test_a_view_needs_no_metrics_that_are_not_read() -> None:
    """The same picture from all metrics of a learner and an actor, and from those that are scraped."""
    for service in ("learner", "actor"):
        telemetry = Telemetry(service, "run")
        for metric in catalogue.CATALOGUE:
            if service in metric.services and metric not in READ_FROM_THE_PROCESS:
                labels = dict.fromkeys(metric.labels, metric.values[0] if metric.values else "pong")
                match metric:
                    case metrics.CounterMetric():
                        telemetry.counter(metric, **labels).inc(3)
                    case metrics.GaugeMetric():
                        telemetry.gauge(metric, **labels).set(4)
                    case metrics.HistogramMetric():
                        telemetry.histogram(metric, **labels).observe(5)
        every = parse(telemetry.exposition(), service)
        read_only = parse(telemetry.exposition([metric.name for metric in launch_readings._READ]), service)
        some = {key: every[key] for key in read_only}
        assert len(some) < len(every) / 2
        child, makers = [ChildState(f"{service}-0", "running", 1, 0)], [SnapshotMaker(StopSettings()) for _ in range(2)]
        for at, growth in ((1.0, 1.0), (2.0, 1.5)):
            pictures = []
            for maker, found in zip(makers, (every, some), strict=True):
                grown = {key: value * growth for key, value in found.items()}
                pictures.append(maker.make(Readings(at, {f"{service}-0": grown}), child, at))
            assert pictures[0] == pictures[1]


def test_a_hanging_process_and_a_busy_machine_are_named() -> None:
    maker = SnapshotMaker(StopSettings())
    names = [child.name for child in CHILDREN]

    def look(at: float, *answering: str, **ages: float) -> tuple[tuple[str, ...], list[str]]:
        found = {name: samples(herd_process_heartbeat_age_ratio=ages.get(name.replace("-", "_"), 0.1)) for name in answering}
        picture = maker.make(Readings(at, found, other_programs="other programs use 1.9 of 2 cores" if at > 90.0 else ""), CHILDREN, at)
        return picture.troubles, [child.state for child in picture.children]

    assert look(1.0, "learner-0", "actor-0") == ((), ["running"] * 3)  # actor-1 has not answered yet: it is loading
    assert look(40.0, "learner-0", "actor-0", actor_0=1.0) == ((), ["running"] * 3)
    hangs = "actor-0 hangs: its main loop has been silent for longer than it may be"
    assert look(41.0, "learner-0", "actor-0", actor_0=1.1) == ((hangs,), ["running", "hanging", "running"])
    assert look(56.0, "learner-0") == ((), ["running"] * 3)
    assert look(57.0, *names[::2]) == (("actor-0 has not answered for 16 s",), ["running", "hanging", "running"])
    assert look(91.0, *names) == (("other programs use 1.9 of 2 cores",), ["running"] * 3)
    old = Readings(92.0, {name: {} for name in names}, pids={"actor-0": 2})  # read before it was replaced by process 9
    again = [CHILDREN[0], ChildState("actor-0", "running", 9, 2), CHILDREN[2]]
    maker.make(old, again, 92.0)
    assert maker.make(Readings(120.0, {"learner-0": {}, "actor-1": {}}), again, 120.0).troubles == ()  # it is loading
    replaced = [CHILDREN[0], ChildState("actor-0", "running", 9, 2), ChildState("actor-1", "given up", None, 4)]
    assert maker.make(Readings(200.0, {"learner-0": {}}), replaced, 1.0).troubles == ("actor-1 was given up: it kept failing",)
    assert maker.make(Readings(201.0, {"learner-0": samples(herd_learner_write_failures_total=2.0)}), [CHILDREN[0]], 1.0).troubles == (
        "2 writes failed: is the disk full? (the learner's log says which)",
    )


def test_replaced_environments_and_unrolls_that_the_learner_refused_are_shown_to_the_end() -> None:
    maker, running = SnapshotMaker(StopSettings()), [ChildState(name, "running", 1, 0) for name in ("actor-0", "actor-1")]

    def look(at: float, state: str = "running", **counts: tuple[float, float]) -> tuple[str, ...]:
        found = {
            name: samples(herd_actor_environments_replaced_total=replaced, herd_actor_unrolls_rejected_total=rejected)
            for name, (replaced, rejected) in counts.items()
        }
        readings = Readings(at, {name.replace("_", "-"): each for name, each in found.items()})
        return maker.make(readings, [replace(child, state=state) for child in running], at).troubles

    assert look(1.0, actor_0=(0, 0), actor_1=(0, 0)) == ()
    assert look(2.0, actor_0=(1, 0), actor_1=(0, 0)) == ("1 environment failed and was replaced (actor-0's log says why)",)
    both = (
        "5 environments failed and were replaced (the actors' logs say why)",
        "20 unrolls could not be used and were dropped (the learner's log says why)",
    )
    assert look(3.0, actor_0=(1, 20), actor_1=(4, 0)) == both
    assert look(4.0, actor_1=(4, 0)) == both  # an answer was lost
    assert look(5.0, "stopped") == both


def test_the_starved_share_is_that_of_the_most_starved_shard_and_at_most_1() -> None:
    """Waiting time is counted when the wait ends, so 3 s may fall into one second between two looks."""
    maker, shards = SnapshotMaker(StopSettings()), [ChildState(f"learner-{rank}", "running", rank, 0) for rank in range(2)]
    shares = []
    for at, waited in ((1.0, 0.8), (2.0, 1.6), (3.0, 4.6)):
        answers = {f"learner-{rank}": samples(herd_learner_starved_seconds_total=rank * waited) for rank in range(2)}
        shares.append(maker.make(Readings(at=at, samples=answers, point={}), shards, at).starved_share)
    assert shares == [None, pytest.approx(0.8), 1.0]


def test_frames_of_a_resumed_run_continue_from_the_logged_point() -> None:
    maker = SnapshotMaker(StopSettings(env_frames=2000))

    def frames(counter: float, logged: int) -> float:
        made: RunSnapshot = maker.make(readings(counter, counter, {"env_frames": logged}), CHILDREN, 1.0)
        return made.env_frames

    assert frames(0.0, 1000) == 1000
    assert frames(300.0, 1000) == 1300
    assert frames(500.0, 1450) == 1450
    assert frames(600.0, 1450) == 1550
    assert frames(50.0, 1450) == 1450  # the learner restarted


def test_frames_do_not_change_while_a_shard_misses_its_scrape() -> None:
    maker, shards = SnapshotMaker(StopSettings()), [ChildState(f"learner-{rank}", "running", rank, 0) for rank in range(2)]

    def frames(at: float, *counters: float) -> float:
        answers = {f"learner-{rank}": samples(herd_learner_env_frames_total=counter) for rank, counter in enumerate(counters)}
        return maker.make(Readings(at=at, samples=answers, point={"env_frames": 1000}), shards, at).env_frames

    assert frames(1.0, 300.0, 300.0) == 1000
    assert frames(2.0, 400.0, 400.0) == 1200
    assert frames(3.0, 450.0) == 1200
    assert frames(4.0, 500.0, 500.0) == 1400


def test_only_the_current_process_of_a_name_is_scraped(tmp_path: Path) -> None:
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes" / "actor-0.json").write_text(json.dumps({"pid": 5, "metrics_port": 99}))
    (tmp_path / "processes" / "actor-1.json").write_text("{")
    (tmp_path / "processes" / "actor-2.json").write_text(json.dumps({"pid": 5, "metrics_host": "::1", "metrics_port": 99}))
    assert metrics_url(tmp_path, "actor-0", 5) == "http://127.0.0.1:99/metrics"
    assert metrics_url(tmp_path, "actor-2", 5) == "http://[::1]:99/metrics"
    assert metrics_url(tmp_path, "actor-0", 6) is None
    assert metrics_url(tmp_path, "actor-1", 5) is None
    asked: list[str] = []

    def endpoint(url: str, timeout: float, metrics: object) -> Samples:
        asked.append(url)
        if len(asked) > 1:
            raise ScrapeError("gone")
        return samples(herd_actor_env_frames_total=7.0)

    found = read(tmp_path, {"actor-0": 5, "actor-1": 6, "learner-0": 7}, endpoint).samples
    assert asked == ["http://127.0.0.1:99/metrics"]
    assert {name: work_done(name, values) for name, values in found.items()} == {"actor-0": 7.0}
    assert read(tmp_path, {"actor-0": 5}, endpoint).samples == {}


def test_closing_a_watcher_ends_its_thread(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, interval_seconds=0.01)
    watcher.watch({"learner-0": os.getpid()})
    assert watcher.most_work(os.getpid()) == 0.0
    watcher.close()
    assert not watcher._thread.is_alive()


def test_frames_of_tasks_come_from_the_point_or_the_counters() -> None:
    point = {"tasks": {"pong": {"env_frames": 2**53 + 1, "episodes": 2, "human_normalised": 0.25}, "qbert": {"env_frames": 0}}}
    seen = readings(1.0, 0.0, point, herd_learner_human_normalised_mean_capped=0.0)
    picture = SnapshotMaker(StopSettings()).make(seen, CHILDREN, 1.0)
    assert [(task.name, task.env_frames, task.human_normalised) for task in picture.tasks] == [
        ("pong", 2**53 + 1, 0.25),
        ("qbert", 0, None),
    ]
    assert picture.human_normalised == 0.0
    seen = readings(1.0, 0.0)
    seen.samples["learner-0"]["herd_learner_task_env_frames_total", (("task", "pong"),)] = 80.0
    picture = SnapshotMaker(StopSettings()).make(seen, CHILDREN, 1.0)
    assert [(task.name, task.env_frames) for task in picture.tasks] == [("pong", 80.0), ("qbert", 0.0)]
    assert picture.human_normalised is None
