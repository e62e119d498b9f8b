"""The self-test that ``helm test`` runs, against endpoints that answer as services do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.self_test import Reading, judge, main, watch
from herd.telemetry.telemetry import RUN_IS_OVER, Telemetry

Start = Callable[[str], tuple[Telemetry, str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Yields a function that starts a ready service and returns its telemetry and address."""
    started: list[Telemetry] = []

    def start_one(service: str) -> tuple[Telemetry, str]:
        telemetry = Telemetry(service, "run")  # type: ignore[arg-type]
        started.append(telemetry)
        telemetry.set_ready(True)
        return telemetry, f"http://127.0.0.1:{telemetry.serve('127.0.0.1', 0)}"

    yield start_one
    for telemetry in started:
        telemetry.close()


class Time:
    """A clock that advances only in ``pause``; the n-th function of ``then`` is called during the n-th pause."""

    def __init__(self, *then: Callable[[], object]) -> None:
        self.now = 0.0
        self._then = list(then)

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self._then:
            self._then.pop(0)()


def test_flowing_frames_pass_the_self_test(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    (learner, learner_url), (_, other_url) = start("learner"), start("paramserver")
    frames = learner.counter(training_metrics.LEARNER_ENV_FRAMES)
    frames.inc(1000)
    learner.gauge(unroll_metrics.CONNECTED_ACTORS).set(3)
    time = Time(lambda: None, lambda: frames.inc(500))
    assert watch([learner_url], [other_url], 60.0, clock=time, pause=time.pause)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"0 frames per second: no frames at {learner_url}")
    assert lines[1] == "every service is ready; 3 connections of actors, 250 frames per second"
    assert time.now == 4.0


def test_frames_of_shards_are_added_up(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [start("learner") for _ in range(2)]
    counters = [telemetry.counter(training_metrics.LEARNER_ENV_FRAMES) for telemetry, _ in shards]

    def all_train() -> None:
        for counter in counters:
            counter.inc(100)

    time = Time(all_train)
    assert watch([url for _, url in shards], [], 60.0, clock=time, pause=time.pause)
    assert "100 frames per second" in capsys.readouterr().out


def test_services_that_are_not_ready_are_named_and_awaited(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    (learner, learner_url), (bandit, bandit_url) = start("learner"), start("bandit")
    bandit.set_ready(False, "starting")
    frames = learner.counter(training_metrics.LEARNER_ENV_FRAMES)

    def work() -> None:
        frames.inc(10)

    def become_ready() -> None:
        work()
        bandit.set_ready(True)

    time = Time(work, work, become_ready)
    assert watch([learner_url], [bandit_url], 60.0, clock=time, pause=time.pause)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"not ready: {bandit_url}"
    assert len(lines) == 2  # an unchanged state is printed once


def test_the_self_test_fails_after_its_timeout(start: Start) -> None:
    _, learner_url = start("learner")
    time = Time()
    assert not watch([learner_url], [], 7.0, clock=time, pause=time.pause)
    assert time.now == 8.0


def test_an_unreachable_learner_is_named() -> None:
    gone = Reading(("http://learner",), {}, 0.0, frozenset())
    verdict = judge(gone, gone, 2.0)
    assert not verdict.works
    assert verdict.line == "not ready: http://learner"


def test_decreasing_frames_fail_the_self_test() -> None:
    before, now = ({"a": 500.0}, {"a": 20.0})
    assert not judge(Reading((), before, 1.0, frozenset()), Reading((), now, 1.0, frozenset()), 2.0).works


def test_a_member_without_frames_is_named_although_the_others_train() -> None:
    before = Reading((), {"a": 100.0, "b": 0.0, "c": 90.0}, 3.0, frozenset({"c"}))
    now = before._replace(env_frames={"a": 700.0, "b": 0.0, "c": 90.0})
    assert judge(before, now, 2.0) == (False, "every service is ready; 3 connections of actors, 300 frames per second: no frames at b")
    # A member that has finished needs none.
    assert judge(before, now._replace(over=frozenset({"b", "c"})), 2.0).works


def test_the_exit_code_tells_whether_the_self_test_passed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, url = start("learner")
    learner.set_ready(True, RUN_IS_OVER)
    monkeypatch.setattr("herd.telemetry.self_test.PAUSE_SECONDS", 0.0)
    assert main(["--learner", url]) == 0
    learner.set_ready(False)
    assert main(["--learner", url, "--timeout-seconds", "0"]) == 1
