"""The parts of fan-in and fan-out that need no other process, and the processes that go wrong."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from herd_learner.fan_in import Consumer
from herd_learner.ledger import Ledger
from herd_learner.queue import QueuedUnroll, UnrollQueue

from herd.bench.fan import limits
from herd.bench.fan.child import Child
from herd.bench.fan.fan_out import FanOutOptions, check_memory
from herd.bench.fan.limits import LimitError, check_servers, client_processes, shares
from herd.bench.fan.lines import LineReader
from herd.bench.fan.pullers import is_whole, marked
from herd.bench.fan.server_tree import level_sizes
from herd.bench.stages import StageError
from herd.wire.layout import UnrollLayout
from herd.wire.weights_client import WeightsFrame

LAYOUT = UnrollLayout(unroll_length=2, frame_stack=1, frame_shape=(1, 1, 1), num_actions=2)
ACTOR = (7, 99)


@pytest.fixture
def pipe() -> Iterator[tuple[LineReader, int]]:
    reading, writing = os.pipe()
    yield LineReader(reading), writing
    os.close(reading)


def test_lines_come_whole_and_in_order(pipe: tuple[LineReader, int]) -> None:
    reader, writing = pipe
    assert reader.read() == []
    os.write(writing, b'{"a": 1}\n{"b"')
    assert reader.read(1.0) == [{"a": 1}]
    os.write(writing, b': 2}\n\n{"c": 3}\n')
    assert reader.read(1.0) == [{"b": 2}, {"c": 3}]
    os.write(writing, b"[1]\n")
    with pytest.raises(ValueError, match="not a JSON object"):
        reader.read(1.0)
    os.close(writing)
    with pytest.raises(EOFError):
        reader.read()


def test_a_process_that_fails_says_why() -> None:
    script = "import sys; print('first', file=sys.stderr); print('the reason', file=sys.stderr); sys.exit(3)"
    with (
        Child("actors", [sys.executable, "-c", script]) as child,
        pytest.raises(StageError, match=r"^actors: ended with exit code 3: the reason$"),
    ):
        child.receive(30.0)


def test_a_process_that_says_nothing_is_not_waited_for() -> None:
    with Child("actors", [sys.executable, "-c", "import sys; sys.stdin.read()"]) as child:
        with pytest.raises(StageError, match=r"actors: no answer within 0\.05 s"):
            child.receive(0.05)
        assert child.peak_memory_bytes() > 1 << 20


def test_commands_are_answered_one_for_one() -> None:
    script = "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)"
    with Child("echo", [sys.executable, "-c", script]) as child:
        assert child.ask("count", timeout_seconds=30.0, of=3) == {"do": "count", "of": 3}
        assert child.ask("end", timeout_seconds=30.0) == {"do": "end"}
        assert child.poll() is None


def test_clients_are_spread_over_as_many_processes_as_open_files_call_for() -> None:
    # Four descriptors a client, 256 beside them.
    assert client_processes(5000, 20_000, None) == 2
    assert client_processes(5000, 1256, None) == 20
    assert client_processes(1, 1024, None) == 1
    assert client_processes(10, 1024, 3) == 3
    with pytest.raises(LimitError, match="need 20 processes at 1,256 open files"):
        client_processes(5000, 1256, 19)
    with pytest.raises(LimitError, match="no room"):
        client_processes(1, 256, None)


def test_a_server_that_would_turn_clients_away_is_said_beforehand() -> None:
    check_servers(5000, 5256, option="--actors")
    with pytest.raises(
        LimitError, match=r"^--actors: 5,000 connections need 5,256 open files .* limit is 5,255: .*ulimit -Hn 5256.* 4,999 at most"
    ):
        check_servers(5000, 5255, option="--actors")
    with pytest.raises(LimitError, match="16,384 connections at most"):
        check_servers(16_385, 1 << 20, option="--actors")


def test_the_soft_limit_is_raised_as_far_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda _, pair: given.append(pair))
    assert limits.raise_limit() == 4096
    assert given == [(4096, 4096)]


def test_answers_under_way_must_fit_in_memory() -> None:
    check_memory(1_000_000, FanOutOptions(actors=50, concurrent=2))
    with pytest.raises(LimitError, match="--concurrent: 1000000 answers"):
        check_memory(4_000_000, FanOutOptions(actors=50, concurrent=1_000_000))


def test_shares_differ_by_one_at_most() -> None:
    assert shares(11, 3) == [4, 4, 3]
    assert shares(2, 3) == [1, 1, 0]


@pytest.mark.parametrize(("replicas", "depth", "sizes"), [(0, 3, []), (4, 1, [4]), (4, 2, [2, 4]), (5, 3, [2, 3, 5]), (1, 2, [1, 1])])
def test_each_level_of_the_tree_is_half_as_wide_as_the_one_below(replicas: int, depth: int, sizes: list[int]) -> None:
    assert level_sizes(replicas, depth) == sizes


def frame(*slices: bytes) -> WeightsFrame:
    digests = tuple(hashlib.sha256(one).hexdigest() for one in slices)
    return WeightsFrame(1, 2, tuple(memoryview(one) for one in slices), digests)


def test_a_version_in_part_is_seen() -> None:
    filling = bytes(200)
    whole = [marked((1, 2), index, 100, filling) for index in range(2)]
    assert [len(one) for one in whole] == [100, 100]
    assert is_whole(frame(*whole))
    assert not is_whole(frame(whole[0], marked((1, 3), 1, 100, filling)))
    assert not is_whole(frame(whole[1], whole[0]))
    assert not is_whole(frame(whole[0][:50] + marked((1, 3), 0, 100, filling)[50:], whole[1]))


def put(queue: UnrollQueue, ledger: Ledger, *numbers: int) -> None:
    block = queue.new_block(len(numbers))
    block.arrays["episode_id"][...] = np.array(numbers)
    snapshot = ledger.snapshot().accounts.get(ACTOR, (0, 0))
    ledger.receive(ACTOR, sequence=snapshot[0] + 1, generated=snapshot[1] + 2 * len(numbers), num_frames=2 * len(numbers))
    queue.put([QueuedUnroll(block, row, ACTOR, (1, 0), 0, 2) for row in range(len(numbers))])


@pytest.mark.parametrize(("numbers", "wrong"), [((0, 1, 2, 3), 0), ((0, 1, 1, 2), 2), ((0, 2, 3, 4), 3), ((0, 2, 1, 3), 2)])
def test_the_consumer_sees_what_is_lost_taken_twice_or_out_of_order(numbers: tuple[int, ...], wrong: int) -> None:
    queue, ledger = UnrollQueue(LAYOUT), Ledger()
    consumer = Consumer(queue, ledger, batch_size=2, unrolls_per_second=float("inf"))
    put(queue, ledger, *numbers)
    assert [consumer.turn(), consumer.turn()] == [2, 2]
    assert consumer.num_out_of_order == wrong
    assert consumer.by_actor == {7: 4}
    assert ledger.totals().is_balanced
    assert (ledger.totals().consumed, ledger.totals().in_flight) == (8, 0)


def test_the_consumer_takes_no_more_than_its_rate() -> None:
    queue, ledger = UnrollQueue(LAYOUT), Ledger()
    # A batch of two every hour.
    consumer = Consumer(queue, ledger, batch_size=2, unrolls_per_second=2 / 3600)
    put(queue, ledger, 0, 1, 2)
    assert [consumer.turn(), consumer.turn()] == [2, 0]
    assert consumer.drain() == 1
    assert len(queue) == 0
