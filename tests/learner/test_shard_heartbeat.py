from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from herd_learner.group.heartbeat import Heartbeat, Silence
from torch.distributed import HashStore  # type: ignore[attr-defined]

SECONDS = 30.0


def test_a_shard_whose_counter_stops_is_lost() -> None:
    silence = Silence(3, timeout_seconds=10.0, now=0.0)
    assert silence.lost([b"1", b"1", b"1"], 1.0) == []
    assert silence.lost([b"2", b"1", b"2"], 11.0) == []  # exactly at the time-out
    assert silence.lost([b"3", b"1", b"2"], 11.5) == [1]
    assert silence.lost([b"4", b"2", b"2"], 21.5) == [2]


def test_a_shard_that_never_sends_a_heartbeat_is_lost() -> None:
    silence = Silence(2, timeout_seconds=5.0, now=100.0)
    assert silence.lost([b"1", b""], 105.0) == []
    assert silence.lost([b"2", b""], 105.1) == [1]


def test_shards_that_said_goodbye_or_are_forgiven_are_not_lost() -> None:
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


class Watched(Heartbeat):
    """The heartbeat of one of two shards, whose other one has sent its first and no more."""

    def __init__(self, store: HashStore, *, rank: int = 0, timeout_seconds: float = 1.0) -> None:
        self.reasons: list[str] = []
        self.given_up = threading.Event()
        store.set(f"beat/{1 - rank}", "0")
        super().__init__(store, rank=rank, size=2, timeout_seconds=timeout_seconds, give_up=self._note)

    def _note(self, reason: str) -> None:
        self.reasons.append(reason)
        self.given_up.set()


def test_give_up_is_called_when_another_shard_is_silent(store: HashStore) -> None:
    heartbeat = Watched(store)
    heartbeat.start()
    assert heartbeat.given_up.wait(SECONDS)
    assert heartbeat.reasons == ["learner shard 1 has been silent for 1 s"]
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


def test_a_store_that_does_not_answer_is_a_lost_first_shard() -> None:
    store = StoppedStore()
    heartbeat = Watched(store, rank=1)
    heartbeat.start()
    try:
        assert heartbeat.given_up.wait(SECONDS)
        assert heartbeat.reasons == ["learner shard 0 has been silent for 1 s"]
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
def test_after_its_own_pause_a_shard_waits_a_full_timeout(
    store: HashStore, monkeypatch: pytest.MonkeyPatch, looks: tuple[float, ...], lost: bool
) -> None:
    clock = Looks(*looks)
    monkeypatch.setattr("herd_learner.group.heartbeat.time", clock)
    heartbeat = Watched(store, rank=1)
    monkeypatch.setattr(heartbeat, "_stopping", clock)
    heartbeat._watch()
    assert bool(heartbeat.reasons) == lost


def test_after_stop_lost_shards_are_ignored(store: HashStore) -> None:
    heartbeat = Watched(store, timeout_seconds=0.1)
    heartbeat.stop()
    heartbeat.start()
    heartbeat._thread.join(SECONDS)
    assert not heartbeat._thread.is_alive()
    assert heartbeat.reasons == []
    assert store.get("beat/0") == b"bye"


def test_end_if_silent_detects_a_lost_shard(store: HashStore) -> None:
    heartbeat = Watched(store, timeout_seconds=0.5)
    heartbeat.start()
    heartbeat.end_if_silent()
    assert heartbeat.given_up.is_set()
