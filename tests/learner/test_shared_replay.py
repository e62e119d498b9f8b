"""A learner's replay thread beside a service that answers, is empty, is silent, loses its data, or sends damaged data."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from herd_learner.batches.assembler import BatchAssembler
from herd_learner.batches.shared import BACKLOG_BATCHES
from herd_learner.group.collectives import ShardGroup
from herd_learner.group.rendezvous import Place
from herd_learner.group.turns import Turn
from herd_learner.intake.queue import QueuedUnroll
from herd_learner.loop import Learner, Prepared
from herd_learner.population.link import CarriedOut
from numpy.typing import NDArray

from herd.config.run import RunSettings
from herd.protocols.replay.samples import SampledEpisode, SampledUnrolls
from herd.rpc.codec import MalformedMessage
from herd.training.batch import BatchBuffer
from tests.learner.small_unrolls import LAYOUT

NUM_ONLINE, NUM_REPLAYED, MINIMUM = 2, 3, 100
OTHER_AGENT = 4
DAMAGED = -1


@dataclass
class FakeUnroll:
    """Writes its number into every field."""

    number: int
    agent: int = 0
    first_step: int = 0

    @property
    def policy_version(self) -> tuple[int, int]:
        return (1, self.number)

    def write_into(self, arrays: dict[str, NDArray[Any]], row: int) -> None:
        if self.number == DAMAGED:
            raise MalformedMessage("torn", "array")
        for name in ("actions", "rewards"):
            arrays[name][row] = self.number
        arrays["row_valid"][row] = True


@dataclass(eq=False)
class FakePart:
    """Unrolls ``start`` to ``stop`` of an episode of ``num_unrolls``; they are numbered from ``first``."""

    first: int
    num_unrolls: int
    start: int = 0
    stop: int | None = None

    @property
    def layout(self) -> Any:
        return LAYOUT

    @property
    def episode_steps(self) -> int:
        return self.num_unrolls * LAYOUT.new_steps

    @property
    def stop_step(self) -> int:
        return (self.num_unrolls if self.stop is None else self.stop) * LAYOUT.new_steps

    def unrolls(self) -> list[FakeUnroll]:
        return [FakeUnroll(self.first + step // LAYOUT.new_steps, first_step=step) for step in self._steps()]

    def _steps(self) -> range:
        return range(self.start * LAYOUT.new_steps, self.stop_step, LAYOUT.new_steps)


@dataclass
class FakeClient:
    """Returns the answers that the test puts into ``answers``."""

    num_steps_stored: int | None = None
    num_dropped_unrolls: int = 0
    refused: str | None = None
    is_closed: bool = False
    inserted: list[tuple[list[int], list[list[int]]]] = field(default_factory=list)
    inserted_steps: int = 0
    """Valid rows of the inserted unrolls."""
    requests: list[tuple[int, bool]] = field(default_factory=list)
    continued: list[Any] = field(default_factory=list)
    num_discarded_episodes: int = 0
    answers: deque[Any] = field(default_factory=deque)
    num_answered: int = 0

    def insert(self, arrays: dict[str, NDArray[Any]], num_unrolls: int, actors: NDArray[np.int64]) -> None:
        assert set(arrays) == {each.name for each in LAYOUT.fields}
        assert len(arrays["actions"]) == num_unrolls
        self.inserted.append((arrays["episode_id"].tolist(), actors.tolist()))
        self.inserted_steps += int(arrays["row_valid"].sum())

    def request(self, count: int, *, whole_episodes: bool) -> None:
        self.requests.append((count, whole_episodes))

    def request_next(self, part: Any) -> None:
        self.continued.append(part)

    def poll(self, timeout_seconds: float) -> Sequence[Any]:  # noqa: ARG002  as the client
        samples = list(self.answers)
        self.answers.clear()
        return samples

    def close(self) -> None:
        self.is_closed = True

    @property
    def num_asked(self) -> int:
        return sum(count for count, _ in self.requests)


class Rig:
    """A learner's batches and the thread behind them; the test runs the thread's turns."""

    def __init__(
        self,
        *,
        whole_episodes: bool = False,
        prefetch: int = 2,
        timeout_seconds: float = 0.05,
        num_slots: int = 1,
        train_online: bool = True,
        num_stored: int | None = MINIMUM,
    ) -> None:
        """``num_stored``: the steps that the service holds before the first turn; None if it was not heard yet."""
        replay = {
            "kind": "shared",
            "fraction": NUM_REPLAYED / (NUM_ONLINE + NUM_REPLAYED),
            "minimum_fill_agent_steps": MINIMUM,
            "prefetch_batches": prefetch,
            "timeout_seconds": timeout_seconds,
            "train_online": train_online,
        }
        settings = RunSettings.model_validate(
            {
                "replay": replay,
                "learner": {"batch_size": NUM_ONLINE + NUM_REPLAYED},
                "actor": {"environments": 1},
                "network": {"core": "lstm" if whole_episodes else "none"},
            }
        )
        self.client = FakeClient()
        client: Any = self.client
        self.batches = BatchAssembler(LAYOUT, settings, torch.device("cpu"), num_slots=num_slots, replay_client=client)
        assert self.batches.shared is not None
        self.shared = self.batches.shared
        self._num_online = 0
        if num_stored is not None:
            self.client.num_steps_stored = num_stored
            self.shared.turn(0.0)

    def online(self) -> list[QueuedUnroll]:
        """The next unrolls from actors, numbered from 1000."""
        arrays = LAYOUT.allocate(NUM_ONLINE)
        numbers = 1000 + self._num_online + np.arange(NUM_ONLINE)
        self._num_online += NUM_ONLINE
        arrays["episode_id"][...] = numbers
        arrays["actions"][...] = 1000 + numbers[:, None]
        arrays["row_valid"][...] = True
        return [QueuedUnroll(arrays, row, (row, 7), (1, 0), 0, 8) for row in range(NUM_ONLINE)]

    def give(self, *numbers: int, agent: int = 0) -> None:
        self.client.answers.append(SampledUnrolls([FakeUnroll(number, agent) for number in numbers]))  # type: ignore[misc]

    def give_part(self, first: int, num_unrolls: int, start: int = 0, stop: int | None = None, *, after: Any = None) -> None:
        """Answer with a part of an episode, which continues the part ``after``."""
        self.client.answers.append(SampledEpisode(FakePart(first, num_unrolls, start, stop), after))  # type: ignore[arg-type]

    def step(self, *, with_replayed: bool | None = None) -> tuple[list[int], BatchBuffer]:
        """Make a batch; returns the numbers of its replayed unrolls."""
        online = self.online()
        if with_replayed is None:
            with_replayed = self.batches.wait_for_replayed()
        buffer = self.batches.assemble(online, with_replayed=with_replayed)
        self.shared.consume(online)
        batch = buffer.batch
        assert batch.is_replayed.tolist() == [False] * NUM_ONLINE + [True] * buffer.num_replayed
        assert (batch.actions[:, :NUM_ONLINE].numpy() >= 1000).all()  # every batch has online rows
        return batch.actions[0, NUM_ONLINE:].tolist(), buffer


def test_below_the_minimum_fill_batches_hold_only_online_unrolls() -> None:
    rig = Rig(timeout_seconds=10.0, num_stored=None)
    for stored in (None, 0, MINIMUM - 1):
        rig.client.num_steps_stored = stored
        rig.shared.turn(0.0)
        assert rig.step()[0] == []  # without waiting
    assert rig.client.requests == []
    rig.client.num_steps_stored = MINIMUM
    rig.shared.turn(0.0)
    assert rig.client.num_asked >= NUM_REPLAYED
    assert rig.step()[0] == []  # nor does it wait for unrolls that never existed
    assert rig.shared.num_timeouts == 0


def test_above_the_minimum_fill_every_batch_has_its_replayed_share() -> None:
    rig = Rig(prefetch=2)
    number = 0
    asked = 0
    agents: list[int] = []
    for turn in range(30):
        while rig.shared.turn(0.0):
            pass
        if missing := rig.client.num_asked - asked:  # answer what was asked for, and no more
            agent = OTHER_AGENT if turn % 2 else 0
            rig.give(*range(number, number + missing), agent=agent)
            agents += [agent] * missing
            number, asked = number + missing, asked + missing
        while rig.shared.turn(0.0):
            pass
        replayed, buffer = rig.step()
        assert replayed == list(range(turn * NUM_REPLAYED, (turn + 1) * NUM_REPLAYED))
        assert buffer.batch.num_unrolls == NUM_ONLINE + NUM_REPLAYED
        assert rig.batches.replayed_versions == [(1, each) for each in replayed if agents[each] == 0]
    # Requests ahead of need are bounded: two batches that are ready, and three of single unrolls.
    assert asked <= (30 + 2 + 3) * NUM_REPLAYED
    assert not any(whole for _, whole in rig.client.requests)


@pytest.mark.parametrize("train_online", [True, False])
def test_online_unrolls_beside_replayed_ones_are_inserted_and_trained_on_if_set(*, train_online: bool) -> None:
    """Without replayed unrolls they are always trained on, because there is nothing else."""
    rig = Rig(train_online=train_online, num_slots=2, num_stored=None)
    rows = LAYOUT.new_steps
    assert rig.step()[1].num_trained_rows == (NUM_ONLINE * rows, 0)
    rig.client.num_steps_stored = MINIMUM
    rig.shared.turn(0.0)
    rig.give(*range(NUM_REPLAYED))
    rig.shared.turn(0.0)
    for expected in ((NUM_ONLINE * rows if train_online else 0, NUM_REPLAYED * rows), (NUM_ONLINE * rows, 0)):
        assert rig.step()[1].num_trained_rows == expected
    rig.shared.turn(0.0)
    assert rig.client.inserted_steps == 3 * NUM_ONLINE * rows


def test_consumed_unrolls_are_inserted_once_and_in_order() -> None:
    rig = Rig()
    for _ in range(3):
        rig.step()
    rig.shared.turn(0.0)
    assert [number for numbers, _ in rig.client.inserted for number in numbers] == list(range(1000, 1000 + 3 * NUM_ONLINE))
    assert all(actors == [[0, 7], [1, 7]] for _, actors in rig.client.inserted)
    assert len(rig.client.inserted) == 3


def test_a_slow_replay_thread_drops_unrolls_to_bound_memory() -> None:
    rig = Rig()
    for _ in range(BACKLOG_BATCHES + 3):
        rig.step()
    assert rig.shared.num_inserts_dropped == 3 * NUM_ONLINE
    rig.shared.turn(0.0)
    assert len(rig.client.inserted) == BACKLOG_BATCHES
    rig.client.num_dropped_unrolls = 5
    assert rig.shared.num_inserts_dropped == 3 * NUM_ONLINE + 5


def test_a_silent_service_delays_only_one_batch() -> None:
    rig = Rig(prefetch=1)
    rig.give(1, 2, 3)
    rig.shared.turn(0.0)
    assert rig.step()[0] == [1, 2, 3]
    assert not rig.shared.is_ready
    started = time.monotonic()
    assert rig.step()[0] == []
    assert time.monotonic() - started >= 0.05
    assert rig.shared.num_timeouts == 1
    for _ in range(3):
        assert rig.shared.is_ready  # ready to continue without replay
        assert rig.step()[0] == []
        rig.shared.turn(0.0)
    assert rig.shared.num_timeouts == 1
    rig.give(4, 5, 6)
    rig.shared.turn(0.0)
    assert rig.step()[0] == [4, 5, 6]
    assert not rig.shared.is_ready  # waits for replay again


def test_a_waiting_batch_is_woken_by_an_answer() -> None:
    rig = Rig(prefetch=1, timeout_seconds=10.0)
    rig.give(1, 2, 3)
    rig.shared.turn(0.0)
    rig.step()
    rig.give(4, 5, 6)
    threading.Thread(target=rig.shared.turn, args=(0.0,)).start()
    assert rig.step()[0] == [4, 5, 6]


def test_a_service_that_lost_half_its_steps_is_not_waited_for() -> None:
    rig = Rig(prefetch=1, timeout_seconds=10.0)
    rig.give(1, 2, 3)
    rig.shared.turn(0.0)
    rig.step()
    rig.client.num_steps_stored = MINIMUM // 2  # the eviction of a long episode is not a loss
    rig.shared.turn(0.0)
    assert not rig.shared.is_ready
    rig.client.num_steps_stored = MINIMUM // 2 - 1
    rig.shared.turn(0.0)
    assert rig.step()[0] == []
    assert rig.shared.num_timeouts == 0


def test_damaged_unrolls_are_counted_and_replaced() -> None:
    rig = Rig(prefetch=1)
    rig.give(1, DAMAGED, DAMAGED, 2)
    rig.shared.turn(0.0)
    assert rig.shared.is_ready  # nothing has arrived yet: the batch has only online unrolls
    rig.give(3)
    rig.shared.turn(0.0)
    assert rig.step()[0] == [1, 2, 3]
    assert rig.shared.num_damaged == 2


def test_a_damaged_unroll_ends_its_episode() -> None:
    rig = Rig(whole_episodes=True, prefetch=1)
    for start in (0, 100, DAMAGED - 1, 300, 400):
        rig.give_part(start, 3)
    rig.shared.turn(0.0)
    assert rig.step()[0] == [0, 100, DAMAGED - 1]
    rig.shared.turn(0.0)
    assert rig.step()[0] == [300, 101, 400]  # the first slot had kept only a part of its first episode


@pytest.mark.parametrize("part_unrolls", [1, 2, 4, 100])
def test_an_episode_in_parts_is_replayed_like_a_whole_one(part_unrolls: int) -> None:
    """Batches hold the same unrolls, and a slot never has more than two parts of its episode and the batches ahead."""
    seen: list[list[list[int]]] = []
    for size in (1000, part_unrolls):
        rig = Rig(whole_episodes=True, prefetch=2)
        episodes = iter(zip(range(0, 100_000, 100), [9, 1, 13, 4, 2, 8, 5, 3] * 10, strict=False))
        seen.append([])
        for _ in range(30):
            busy = True
            while busy:
                busy = rig.shared.turn(0.0)
                while rig.client.num_answered < rig.client.num_asked:
                    first, length = next(episodes)
                    rig.give_part(first, length, 0, min(size, length))
                    rig.client.num_answered += 1
                    busy = True
                for part in rig.client.continued:
                    rig.give_part(part.first, part.num_unrolls, part.stop, min(part.stop + size, part.num_unrolls), after=part)
                    busy = True
                rig.client.continued.clear()
            assert all(len(slot.unrolls) <= size + 2 for slot in rig.shared._stock._slots)  # type: ignore[union-attr]
            seen[-1].append(rig.step()[0])
        assert all(whole for _, whole in rig.client.requests)
    assert seen[0] == seen[1]
    for slot in zip(*seen[0], strict=True):
        for before, after in pairwise(slot):
            assert after == before + 1 or after % 100 == 0  # the next unroll of the episode, or the first one of another
    began = [number for replayed in seen[0] for number in replayed if number % 100 == 0]
    assert began == sorted(set(began))
    assert rig.client.num_answered <= len(began) + 2 * NUM_REPLAYED  # requested only when a slot is about to need it


def test_a_slot_whose_episode_was_evicted_begins_another() -> None:
    rig = Rig(whole_episodes=True, prefetch=1, timeout_seconds=10.0)
    for first in (0, 100, 200, 300, 400, 500):
        rig.give_part(first, 9, 0, 2)
    for _ in range(3):
        rig.shared.turn(0.0)
    assert [part.first for part in rig.client.continued] == [0, 100, 200]  # each is asked for once
    lost, *found = rig.client.continued
    rig.client.continued.clear()
    rig.client.answers.append(SampledEpisode(None, lost))
    for part in found:
        rig.give_part(part.first, 9, 2, 9, after=part)
    taken = []
    for _ in range(3):
        rig.shared.turn(0.0)
        taken.append(rig.step()[0])
    assert taken == [[0, 100, 200], [1, 101, 201], [300, 102, 202]]


def test_an_answer_for_an_episode_that_was_dropped_meanwhile_is_ignored() -> None:
    rig = Rig(whole_episodes=True, prefetch=1, timeout_seconds=10.0)
    for first in (0, 100, 200, 300, 400, 500):
        rig.give_part(first, 9, 0, 2)
    rig.shared.turn(0.0)
    rig.shared.turn(0.0)
    late = list(rig.client.continued)
    rig.shared.begin_new_episodes()
    for part in late:
        rig.give_part(part.first, 9, 2, 9, after=part)
    rig.shared.turn(0.0)
    rig.shared.turn(0.0)
    assert rig.step()[0] == [300, 400, 500]


def _give_episodes(rig: Rig, firsts: Iterator[int], num_unrolls: int) -> None:
    """Answer every request for episodes, and fill batches until no more can be filled."""
    busy = True
    while busy:
        busy = rig.shared.turn(0.0)
        while rig.client.num_answered < rig.client.num_asked:
            rig.give_part(next(firsts), num_unrolls)
            rig.client.num_answered += 1
            busy = True


@pytest.mark.parametrize("num_unrolls", [2, 3, 7])
def test_slots_are_at_different_places_of_episodes_of_equal_length(num_unrolls: int) -> None:
    rig = Rig(whole_episodes=True, prefetch=2)
    firsts = iter(range(0, 100_000, 100))
    seen = []
    for _ in range(6 * num_unrolls):
        _give_episodes(rig, firsts, num_unrolls)
        seen.append(rig.step()[0])
    assert seen[0] == [0, 100, 200]  # a slot begins at the first step, where its state is known
    for replayed in seen[num_unrolls:]:
        positions = sorted(number % 100 for number in replayed)
        assert len(set(positions)) == min(NUM_REPLAYED, num_unrolls)
        gaps = [(after - before) % num_unrolls for before, after in pairwise([*positions, positions[0]])]
        assert max(gaps) <= -(-num_unrolls // NUM_REPLAYED)  # evenly spread


class _Group(ShardGroup):
    """One of two shards, which knows what both say."""

    def __init__(self, rank: int, turns: list[Turn]) -> None:
        super().__init__(Place(rank, 2))
        self._turns = turns

    def all_gather(self, mine: torch.Tensor) -> torch.Tensor:
        assert mine.tolist() == list(self._turns[self.rank])
        return torch.tensor(self._turns, dtype=mine.dtype)


def test_shards_replay_together_or_not_at_all() -> None:
    rigs = [Rig(whole_episodes=True, prefetch=1, num_stored=None) for _ in range(2)]
    firsts = iter(range(0, 100_000, 100))
    seen: list[list[list[int]]] = []
    # Which services answer before each batch: none, one before its first unrolls, both, then each is late once.
    for answering in ((), (0,), (1,), (0, 1), (1,), (0,), (0, 1), (0,), (1,)):
        for rank in answering:
            rigs[rank].client.num_steps_stored = MINIMUM
            _give_episodes(rigs[rank], firsts, 9)
        turns = [Turn(is_ready=True, has_replayed=rig.batches.wait_for_replayed()) for rig in rigs]
        agreed = [_Group(rank, turns).agree(turn).has_replayed for rank, turn in enumerate(turns)]
        seen.append([rig.step(with_replayed=each)[0] for rig, each in zip(rigs, agreed, strict=True)])
    assert [[bool(part) for part in batch] for batch in seen] == [
        [each] * 2 for each in (False, False, *[True] * 2, False, *[True] * 2, False, True)
    ]
    assert [rig.shared.num_timeouts for rig in rigs] == [1, 1]
    # No unroll of an episode is lost by a batch without replayed unrolls.
    for rank in range(2):
        parts = [batch[rank] for batch in seen if batch[rank]]
        for before, after in pairwise(parts):
            assert all(new == old + 1 or new % 100 == 0 for old, new in zip(before, after, strict=True))
        assert [number for number in parts[0] if number % 100] == []


@pytest.mark.parametrize("all_have_it", [False, True])
def test_a_prepared_batch_is_trained_without_replayed_unrolls_that_another_shard_lacks(all_have_it: bool) -> None:
    buffer = BatchBuffer(LAYOUT, NUM_ONLINE + NUM_REPLAYED)
    buffer.set_counts(NUM_ONLINE, NUM_REPLAYED)
    learner = mock.MagicMock(_prepared=Prepared(buffer.batch, NUM_REPLAYED, [], (0, 0)))
    learner._settings.learner.sample_reuse = 1
    learner._begin_new_episodes = lambda: Learner._begin_new_episodes(learner)
    Learner._step(learner, [], has_replayed=all_have_it, may_publish=True)
    batch, num_replayed = learner._trainer.begin.call_args.args
    assert (batch.num_unrolls, num_replayed) == (NUM_ONLINE + num_replayed, NUM_REPLAYED if all_have_it else 0)
    assert learner._batches.shared.begin_new_episodes.called == (not all_have_it)


@pytest.mark.parametrize("is_copy", [False, True])
def test_an_order_of_the_population_begins_new_episodes_if_it_copies_weights(is_copy: bool) -> None:
    rig = Rig(whole_episodes=True, prefetch=1)
    firsts = iter(range(0, 100_000, 100))
    _give_episodes(rig, firsts, 9)
    _, buffer = rig.step()
    _give_episodes(rig, firsts, 9)
    prepared = Prepared(buffer.batch, NUM_REPLAYED, [(1, 0)], (7, 3))
    learner = mock.MagicMock(_batches=rig.batches, _prepared=prepared)
    learner._population.carry_out.return_value = CarriedOut(RunSettings(), is_copy=is_copy)
    learner._begin_new_episodes = lambda: Learner._begin_new_episodes(learner)
    Learner._carry_out(learner, None, 0.0)
    if not is_copy:
        assert learner._prepared is prepared
        assert rig.step()[0] == [1, 101, 201]
        return
    assert learner._prepared.num_replayed == 0
    assert torch.equal(learner._prepared.batch.actions, buffer.batch.actions[:, :NUM_ONLINE])
    assert (learner._prepared.replayed_versions, learner._prepared.num_trained_rows) == ([], (7, 0))
    _give_episodes(rig, firsts, 9)
    assert [number % 100 for number in rig.step()[0]] == [0, 0, 0]


def test_a_batch_filled_while_weights_change_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(whole_episodes=True, prefetch=1, timeout_seconds=10.0)
    write = FakeUnroll.write_into

    def write_and_change(unroll: FakeUnroll, arrays: dict[str, NDArray[Any]], row: int) -> None:
        write(unroll, arrays, row)
        if unroll.number == 200:
            rig.shared.begin_new_episodes()

    monkeypatch.setattr(FakeUnroll, "write_into", write_and_change)
    _give_episodes(rig, iter(range(0, 100_000, 100)), 9)
    assert rig.step()[0] == [300, 400, 500]


@pytest.mark.parametrize("num_slots", [1, 2])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_filling_a_batch_does_not_overwrite_batches_in_use(num_slots: int, prefetch: int) -> None:
    """With the real thread: a buffer is never filled while the training thread uses it."""
    rig = Rig(prefetch=prefetch, timeout_seconds=10.0, num_slots=num_slots)
    numbers = iter(range(1_000_000))

    def request(count: int, *, whole_episodes: bool) -> None:
        rig.give(*(next(numbers) for _ in range(count)))

    rig.client.request = request  # type: ignore[method-assign]
    rig.shared.turn(0.0)
    rig.shared.turn(0.0)
    rig.shared.start()
    held: deque[tuple[BatchBuffer, list[int]]] = deque(maxlen=num_slots)
    seen = []
    for _ in range(300):
        replayed, buffer = rig.step()
        held.append((buffer, replayed))
        assert len(replayed) == NUM_REPLAYED
        seen += replayed
        for kept, expected in held:
            assert kept.batch.actions[0, NUM_ONLINE:].tolist() == expected
    rig.shared.close()
    assert seen == list(range(len(seen)))
    assert rig.client.is_closed
    rig.shared.close()


def test_a_failed_replay_thread_keeps_its_error_and_delays_no_batch() -> None:
    rig = Rig(prefetch=1, timeout_seconds=10.0)
    rig.give(1, 2, 3)
    rig.shared.turn(0.0)
    rig.step()

    def fail(timeout_seconds: float) -> Sequence[Any]:
        raise RuntimeError("socket")

    rig.client.poll = fail  # type: ignore[method-assign]
    rig.shared.start()
    assert rig.step()[0] == []
    assert isinstance(rig.shared.failure, RuntimeError)
    rig.shared.close()
