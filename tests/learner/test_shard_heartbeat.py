from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from herd_learner.shards.heartbeat import Heartbeat, Silence
from torch.distributed import HashStore  # type: ignore[attr-defined]

SECONDS = 30.0


def test_a_counter_that_stands_still_too_long_is_a_lost_shard() -> None:
    silence = Silence(3, timeout_seconds=10.0, now=0.0)
    assert silence.lost([b"1", b"1", b"1"], 1.0) == []
    assert silence.lost([b"2", b"1", b"2"], 11.0) == []  # exactly at the time-out
    assert silence.lost([b"3", b"1", b"2"], 11.5) == [1]
    assert silence.lost([b"4", b"2", b"2"], 21.5) == [2]


def test_one_that_never_beats_is_lost_too() -> None:
    silence = Silence(2, timeout_seconds=5.0, now=100.0)
    assert silence.lost([b"1", b""], 105.0) == []
    assert silence.lost([b"2", b""], 105.1) == [1]


def test_who_said_goodbye_is_not_lost_and_who_slept_itself_finds_nobody_lost() -> None:
    silence = Silence(2, timeout_seconds=5.0, now=0.0)
    assert silence.lost([b"1", b"bye"], 1.0) == []
    assert silence.lost([b"2", b"bye"], 100.0) == []
    silence = Silence(2, timeout_seconds=5.0, now=0.0)
    silence.forgive(100.0)
    assert silence.lost([b"", b""], 104.0) == []
    assert silence.lost([b"", b""], 105.1) == [0, 1]


@pytest.fixture
def store() -> HashStore:
    store = HashStore()
    store.set_timeout(timedelta(seconds=1))
    return store


def test_the_thread_gives_up_when_another_falls_silent(store: HashStore) -> None:
    given_up, reasons = threading.Event(), []

    def give_up(reason: str) -> None:
        reasons.append(reason)
        given_up.set()

    store.set("beat/1", "0")
    heartbeat = Heartbeat(store, rank=0, size=2, timeout_seconds=1.0, give_up=give_up)
    heartbeat.start()
    assert given_up.wait(SECONDS)
    assert reasons == ["learner shard 1 has been silent for 1 s"]
    assert int(store.get("beat/0")) > 0


class StoppedStore(HashStore):
    """Stands in for a store whose process is stopped: requests are not answered until ``resumed``."""

    def __init__(self) -> None:
        super().__init__()
        self.resumed = threading.Event()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        assert self.resumed.wait(SECONDS)
        values: list[bytes] = super().multi_get(keys)
        return values


def test_a_question_that_never_returns_is_a_lost_first_shard() -> None:
    store, given_up, reasons = StoppedStore(), threading.Event(), []

    def give_up(reason: str) -> None:
        reasons.append(reason)
        given_up.set()

    store.set("beat/0", "0")
    heartbeat = Heartbeat(store, rank=1, size=2, timeout_seconds=1.0, give_up=give_up)
    heartbeat.start()
    try:
        assert given_up.wait(SECONDS)
        assert reasons == ["learner shard 0 has been silent for 1 s"]
    finally:
        store.resumed.set()
        heartbeat.stop()
    assert not heartbeat._thread.is_alive()


class Looks:
    """Stands in for the watchdog's clock and pause: ``at`` are the times at which it looks."""

    def __init__(self, *at: float) -> None:
        self._at = list(at)
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, _seconds: float) -> bool:
        if not self._at:
            return True
        self.now = self._at.pop(0)
        return False

    def is_set(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("looks", "lost"), [((0.5, 1.5, 2.0), True), ((0.5, 60.0, 60.5, 61.0), False), ((0.5, 60.0, 60.5, 61.0, 61.5), True)]
)
def test_a_process_that_was_stopped_itself_gives_the_first_shard_its_time(
    store: HashStore, monkeypatch: pytest.MonkeyPatch, looks: tuple[float, ...], lost: bool
) -> None:
    clock, reasons = Looks(*looks), list[str]()
    monkeypatch.setattr("herd_learner.shards.heartbeat.time", clock)
    heartbeat = Heartbeat(store, rank=1, size=2, timeout_seconds=1.0, give_up=reasons.append)
    monkeypatch.setattr(heartbeat, "_stopping", clock)
    heartbeat._watch()
    assert bool(reasons) == lost


def test_after_stop_others_may_go(store: HashStore) -> None:
    store.set("beat/1", "0")
    given_up = threading.Event()
    heartbeat = Heartbeat(store, rank=0, size=2, timeout_seconds=0.1, give_up=lambda _: given_up.set())
    heartbeat.stop()
    heartbeat.start()
    heartbeat._thread.join(SECONDS)
    assert not heartbeat._thread.is_alive()
    assert not given_up.is_set()
    assert store.get("beat/0") == b"bye"


def test_an_error_of_ones_own_is_told_from_a_lost_shard(store: HashStore) -> None:
    store.set("beat/1", "0")
    given_up = threading.Event()
    heartbeat = Heartbeat(store, rank=0, size=2, timeout_seconds=0.5, give_up=lambda _: given_up.set())
    heartbeat.start()
    heartbeat.end_if_silent()  # shard 1 sends no heartbeat
    assert given_up.is_set()
