"""What is stored, in which order it is evicted, and how it is drawn, compared with plain lists."""

from __future__ import annotations

import tracemalloc
from collections import deque

import numpy as np
import pytest
from herd_replay.assembly import OPEN_PIECE_BYTES, Assembler
from herd_replay.exchange import Replica
from herd_replay.segments import SegmentLog
from herd_replay.store import EpisodeStore
from hypothesis import given, settings
from hypothesis import strategies as st

from herd.protocols.replay.records import Episode, EpisodeKey, Piece, replica_of

VERSIONS = (1, 2, 3, 4)
UNBOUNDED = 1 << 40
BYTES = OPEN_PIECE_BYTES + 1
"""Memory of a `piece` of an open episode."""


def piece(first_step: int, num_steps: int, packed: bytes = b"x") -> Piece:
    return Piece(first_step, num_steps, num_steps + (first_step == 0), VERSIONS, packed)


def episode(number: int, num_steps: int, packed: bytes = b"packed") -> Episode:
    return Episode(EpisodeKey(0, 1, 2, 3, number), 0, num_steps, (piece(0, num_steps, packed),))


def store_of(capacity: int, unroll_length: int = 5, max_bytes: int = 1 << 40, segment_bytes: int = 4096) -> EpisodeStore:
    return EpisodeStore(capacity_steps=capacity, max_bytes=lambda: max_bytes, unroll_length=unroll_length, log=SegmentLog(segment_bytes))


def held(store: EpisodeStore) -> list[int]:
    return [store.record(stored).key.episode_id for stored in store.episodes()]


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=600), capacity=st.integers(40, 200))
def test_the_oldest_episodes_are_evicted_beyond_the_capacity(lengths: list[int], capacity: int) -> None:
    store = store_of(capacity)
    kept: deque[tuple[int, int]] = deque()
    for number, length in enumerate(lengths):
        store.append(episode(number, length))
        kept.append((number, length))
        while sum(steps for _, steps in kept) > capacity:
            kept.popleft()
        assert store.num_steps == sum(steps for _, steps in kept) <= capacity
    assert held(store) == [number for number, _ in kept]
    assert store.num_episodes == len(kept)
    assert store.num_unrolls == sum(-(-steps // 5) for _, steps in kept)
    assert store.num_evicted["capacity"] == len(lengths) - len(kept)
    assert store.inserted_steps == sum(lengths)
    assert store.log.resident_bytes <= 4096 * (3 + len(kept))  # blocks of evicted episodes are freed


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_draws_are_uniform_over_unrolls_and_over_episodes() -> None:
    """Lengths range from 1 to 60 steps: a random unroll of a random episode would be far from uniform."""
    lengths = [1, 60, 5, 6, 33, 2, 49, 10, 11, 20]
    store = store_of(1 << 20)
    for number in range(1000):  # evicted already, so that numbers do not start at 0
        store.append(episode(number, 3))
    store._capacity_steps = sum(lengths)
    for number, length in enumerate(lengths):
        store.append(episode(number, length))
    random = np.random.default_rng(7)
    unrolls = [(number, step) for number, length in enumerate(lengths) for step in range(0, length, 5)]
    assert (store.num_episodes, store.num_unrolls) == (len(lengths), len(unrolls))
    counts = dict.fromkeys(unrolls, 0)
    for _ in range(100 * len(unrolls)):
        stored, first_step = store.draw_unroll(random)
        counts[store.record(stored).key.episode_id, first_step] += 1
    # 43 unrolls have 42 degrees of freedom, with a 99.9 % quantile of 76.1; 10 episodes have 9, with 27.9.
    assert len(unrolls) == 43
    assert chi_square(np.array(list(counts.values()))) < 76.1
    by_episode = np.zeros(len(lengths))
    for _ in range(2000):
        by_episode[store.record(store.draw_episode(random)).key.episode_id] += 1
    assert chi_square(by_episode) < 27.9


def test_the_chi_square_test_detects_a_skewed_draw() -> None:
    random = np.random.default_rng(7)
    counts = np.bincount(np.minimum(random.integers(44, size=4300), 42), minlength=43)  # one of 43 is twice as likely
    assert chi_square(counts) > 76.1


def test_stored_bytes_are_bounded() -> None:
    store = store_of(1 << 30, max_bytes=64 * 4096)
    for number in range(400):
        store.append(episode(number, 7, bytes(3000)))
        assert store.num_bytes <= 64 * 4096
    numbers = held(store)
    assert numbers == list(range(400 - len(numbers), 400))
    assert len(numbers) >= 55
    assert store.num_evicted["memory"] == 400 - len(numbers)


def test_a_drawn_record_survives_eviction() -> None:
    store = store_of(10)
    store.append(episode(0, 10, b"first" * 700))
    (stored,) = store.episodes()
    packed = store.record(stored).packed
    for number in range(1, 50):
        store.append(episode(number, 10, b"later" * 700))
    assert bytes(packed) == b"first" * 700


def grown(make: object, *arguments: object) -> tuple[object, int]:
    tracemalloc.start()
    try:
        made = make(*arguments)  # type: ignore[operator]
        return made, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_reported_bytes_of_small_episodes_match_allocations() -> None:
    def fill() -> EpisodeStore:
        store = store_of(1 << 30, segment_bytes=1 << 20)
        for number in range(20_000):
            store.append(episode(1000 + number, 300 + number))
        return store

    store, allocated = grown(fill)
    assert isinstance(store, EpisodeStore)
    taken = allocated + store.log.resident_bytes  # memory maps do not belong to the allocator
    assert store.num_bytes == pytest.approx(taken, rel=0.1)


def test_reported_bytes_of_open_episodes_match_allocations() -> None:
    def fill() -> Assembler:
        assembler = Assembler(UNBOUNDED)
        for slot in range(2_000):
            for number in range(20):
                key = EpisodeKey(0, 1000 + slot, 1 << 50, 1000 + slot, 300)
                versions = (1000 + number, 2000 + number, 3000 + number, 4000 + number)
                assembler.insert(Episode(key, 0, 0, (Piece(1000 + 20 * number, 20, 20, versions, bytes(900)),)))
        return assembler

    assembler, allocated = grown(fill)
    assert isinstance(assembler, Assembler)
    assert assembler.total_bytes == pytest.approx(allocated, rel=0.1)


def adds(slot: int, number: int, *pieces: Piece, end: int = 0) -> Episode:
    return Episode(EpisodeKey(0, 0, 0, slot, number), 0, end, pieces)


def test_open_episodes_are_bounded_and_the_least_recent_evicted() -> None:
    assembler = Assembler(5 * BYTES - 1)
    for slot in range(4):
        assert assembler.insert(adds(slot, 0, piece(0, 10))) is None
    assert assembler.num_open == 4
    assembler.insert(adds(0, 0, piece(10, 5)))  # too many bytes: the second episode has been silent the longest
    assert [episode.key.environment_slot for episode in assembler.open_episodes()] == [2, 3, 0]
    assert assembler.num_discarded["open"] == 1
    assert (assembler.num_steps, assembler.num_bytes) == (35, 4 * BYTES)
    assembler.insert(adds(1, 0, piece(10, 5)))  # its remaining steps do not start a new episode
    assert (assembler.num_dropped["late"], assembler.num_open) == (1, 3)


def test_an_episode_with_a_gap_is_discarded_two_games_later() -> None:
    assembler = Assembler(UNBOUNDED)
    assembler.insert(adds(0, 0, piece(0, 10)))
    assembler.insert(adds(0, 0, piece(20, 5), end=25))  # steps 10 to 19 are missing
    assert assembler.insert(adds(0, 1, piece(0, 5), end=5)) is not None
    assert assembler.num_open == 1
    assembler.insert(adds(0, 2, piece(0, 5)))
    assert (assembler.num_discarded["hole"], assembler.num_open) == (1, 1)
    assembler.insert(adds(0, 0, piece(10, 10)))
    assembler.insert(adds(0, 1, piece(0, 5), end=5))  # this game has ended and is stored
    assert (assembler.num_dropped["late"], assembler.num_open) == (2, 1)


def test_overlapping_pieces_do_not_complete_an_episode() -> None:
    assembler = Assembler(UNBOUNDED)
    for first_step, end in ((0, 0), (3, 0), (20, 15)):  # there are 15 steps, but not steps 0 to 14
        assert assembler.insert(adds(0, 0, piece(first_step, 5), end=end)) is None


def test_the_number_of_remembered_environments_is_bounded() -> None:
    assembler = Assembler(UNBOUNDED, max_slots=3)
    for slot in range(5):
        assembler.insert(adds(slot, 0, piece(0, 2)))
    assert (assembler.num_open, assembler.num_steps) == (3, 6)
    assert assembler.num_discarded["open"] == 2


def test_shares_of_replicas_add_up() -> None:
    for total in (0, 1, 7, 1_000_003):
        parts = [Replica(index, 4).share_of(total) for index in range(4)]
        assert sum(parts) == total
        assert max(parts) - min(parts) <= 1


def test_replica_of_is_stable_and_spreads_neighbouring_episodes() -> None:
    keys = [
        EpisodeKey(agent, actor, 5, slot, number) for agent in range(2) for actor in range(4) for slot in range(8) for number in range(8)
    ]
    counts = np.bincount([replica_of(key, 3) for key in keys], minlength=3)
    assert chi_square(counts) < 13.8  # 2 degrees of freedom, 99.9 %
    assert [replica_of(EpisodeKey(0, 1, 2, 3, 4), number) for number in (1, 2, 7, 256)] == [0, 0, 6, 28]
