"""The client against replicas that are killed, over a connection that loses, repeats and reorders messages."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from random import Random

import numpy as np
import pytest
from herd_replay.exchange import Replica
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herd.contract.unroll import LINK_BITS, Array, UnrollLayout
from herd.protocols.replay import client as replay_client
from herd.protocols.replay.client import ReplayClient
from herd.protocols.replay.messages import MAX_INSERTED_RECORDS, MAX_SAMPLED_UNROLLS, REPLAY
from herd.protocols.replay.records import PART, EpisodeKey, replica_of
from herd.protocols.replay.samples import EpisodePart, SampledEpisode, SampledUnrolls
from herd.rpc.codec import MalformedMessage, encode
from herd.transport import Frame
from tests.replay.played_games import oracle_slice, play, unrolls_of
from tests.replay.replica import CONTRACT, LAYOUT, Process, pieces_of


class Network:
    """Replicas behind an unreliable connection; time passes only when a client waits."""

    def __init__(
        self,
        directory: Path,
        num_replicas: int,
        seed: int = 0,
        *,
        trouble: float = 0.0,
        layout: UnrollLayout = LAYOUT,
        part_bytes: int = 1 << 20,
    ) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.trouble = trouble
        self.processes: list[Process | None] = [
            Process(directory, capacity=10_000, replica=Replica(index, num_replicas), layout=layout, part_bytes=part_bytes)
            for index in range(num_replicas)
        ]
        self.dealers: list[FakeDealer] = []

    def client(self, endpoint: str, *_: object) -> FakeDealer:
        self.dealers.append(FakeDealer(self, int(endpoint)))
        return self.dealers[-1]

    def poll(self, timeout_seconds: float) -> None:
        """Deliver the messages in flight; each may be lost, doubled or delayed. Then time passes."""
        for dealer in self.dealers:
            process = self.processes[dealer.number]
            outgoing, dealer.outgoing = dealer.outgoing, []
            for frames in self.troubled(outgoing):
                if process is not None:
                    answer = process.ask(frames)
                    dealer.incoming.extend(
                        self.troubled([[*encode(answer.message), *answer.payloads]] if answer.message is not None else [])
                    )
        self.now += timeout_seconds

    def troubled(self, messages: list[list[Frame]]) -> list[list[Frame]]:
        delivered: list[list[Frame]] = []
        for frames in messages:
            copies = 0 if self.random.random() < self.trouble else 2 if self.random.random() < self.trouble else 1
            delivered += [[bytes(frame) for frame in frames]] * copies
        if self.random.random() < self.trouble:
            self.random.shuffle(delivered)
        return delivered


class FakeDealer:
    """Takes the messages that a client sends, and returns what has arrived for it."""

    def __init__(self, network: Network, number: int) -> None:
        self.network, self.number = network, number
        self.outgoing: list[list[Frame]] = []
        self.incoming: deque[list[Frame]] = deque()
        self.sent: list[str] = []
        self.connected = True

    def send(self, frames: list[Frame]) -> bool:
        if not self.connected or self.network.random.random() < self.network.trouble:
            return False  # no connection, or a full queue
        self.outgoing.append(list(frames))
        self.sent.append(REPLAY.decode(frames[0]).type)
        return True

    def receive(self) -> list[memoryview] | None:
        return [memoryview(frame) for frame in self.incoming.popleft()] if self.incoming else None


@pytest.fixture(autouse=True)
def _on_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_client, "Poller", lambda *dealers: dealers[0].network)


def client_of(network: Network, *, max_pending_bytes: int = 1 << 30, layout: UnrollLayout = LAYOUT) -> ReplayClient:
    return ReplayClient(
        network,  # type: ignore[arg-type]
        [str(index) for index in range(len(network.processes))],
        layout=layout,
        run_id="run",
        agent=0,
        contract=CONTRACT,
        max_pending_bytes=max_pending_bytes,
        clock=lambda: network.now,
        random=Random(1),
    )


def insert(client: ReplayClient, *unrolls: dict[str, Array]) -> None:
    arrays = {name: np.concatenate([unroll[name] for unroll in unrolls]) for name in unrolls[0]}
    client.insert(arrays, len(unrolls), np.full((len(unrolls), 2), (4, 1 << 20), np.int64))


def settle(client: ReplayClient) -> list[SampledUnrolls | SampledEpisode]:
    samples: list[SampledUnrolls | SampledEpisode] = []
    for _ in range(3000):
        samples += client.poll(0.1)
        if not client.num_unacknowledged and not client.num_requests:
            return samples
    raise AssertionError("nothing more happens")


RECORD_BYTES = 300
"""More than the largest record of a piece of `LAYOUT`."""
LENGTHS = [3, 9, 5, 12, 1, 7, 4, 8, 6, 10]
SLOTS = 4
STREAMS = [play(LAYOUT, LENGTHS, seed) for seed in range(SLOTS)]
UNROLLS = [unrolls_of(LAYOUT, rows, slot=slot) for slot, rows in enumerate(STREAMS)]
COMPLETE = range(int((np.cumsum(LENGTHS) + np.arange(1, len(LENGTHS) + 1) <= len(UNROLLS[0]) * LAYOUT.new_steps).sum()))
"""Numbers of the games that the unrolls of a stream show completely."""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), num_replicas=st.integers(1, 3), trouble=st.sampled_from([0.0, 0.1, 0.4]))
def test_every_episode_arrives_once_over_a_lossy_network(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_replicas: int, trouble: float
) -> None:
    network = Network(tmp_path_factory.mktemp("replay"), num_replicas, seed, trouble=trouble, part_bytes=1)
    client = client_of(network)
    random = Random(seed)
    waiting = [list(unrolls) for unrolls in UNROLLS]
    while any(waiting):
        chosen = random.choice([unrolls for unrolls in waiting if unrolls])
        insert(client, *[chosen.pop(0) for _ in range(min(len(chosen), random.randint(1, 3)))])
        client.poll(random.choice([0.0, 0.1]))
    settle(client)
    expected = {(slot, number) for slot in range(SLOTS) for number in COMPLETE}
    held = [key for process in network.processes if process is not None for key in process.held()]
    assert sorted((key.environment_slot, key.episode_id) for key in held) == sorted(expected)
    for index, process in enumerate(network.processes):
        assert process is not None
        assert {replica_of(key, num_replicas) for key in process.held()} <= {index}
        assert not any(process.assembler.num_discarded.values())
        assert not any(process.assembler.num_dropped.values())  # no piece arrived twice
    assert client.num_steps_stored == sum(LENGTHS[number] for _, number in expected)
    assert (client.pending_bytes, client.num_dropped_unrolls) == (0, 0)
    client.request(40, whole_episodes=False)
    client.request(3, whole_episodes=True)
    samples = settle(client)
    (drawn,) = [sample for sample in samples if isinstance(sample, SampledUnrolls)]
    assert len(drawn.unrolls) == 40
    for unroll in drawn.unrolls:
        key, got = unroll.part.key, LAYOUT.allocate(1)
        unroll.write_into(got, 0)
        wanted = oracle_slice(LAYOUT, STREAMS[key.environment_slot], key.episode_id, unroll.first_step, slot=key.environment_slot)
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)
    begun = [sample.part for sample in samples if isinstance(sample, SampledEpisode) and sample.part is not None]
    assert len(begun) == 3
    while begun:
        part = begun.pop()
        if part.stop_step < part.episode_steps:
            client.request_next(part)
            (sample,) = settle(client)
            assert isinstance(sample, SampledEpisode)
            assert sample.after is part
            assert sample.part is not None or (trouble and num_replicas > 1)  # it seems to be silent, and the others lack the episode
            begun += [] if sample.part is None else [sample.part]
        key, got, last = part.key, LAYOUT.allocate(1), part.unrolls()[-1]
        last.write_into(got, 0)
        wanted = oracle_slice(LAYOUT, STREAMS[key.environment_slot], key.episode_id, last.first_step, slot=key.environment_slot)
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("fault", ["silent", "empty"])
def test_what_follows_a_part_is_lost_with_its_replica(tmp_path: Path, fault: str) -> None:
    network = Network(tmp_path, 2, part_bytes=1)
    client = client_of(network)
    for unrolls in UNROLLS:
        insert(client, *unrolls)
    settle(client)
    parts: list[EpisodePart] = []
    while not any(part.episode_steps > LAYOUT.new_steps and replica_of(part.key, 2) == 0 for part in parts):
        client.request(1, whole_episodes=True)
        (sample,) = settle(client)
        assert isinstance(sample, SampledEpisode)
        assert sample.part is not None
        parts.append(sample.part)
    network.processes[0] = Process(tmp_path / "new", replica=Replica(0, 2)) if fault == "empty" else None
    client.request_next(parts[-1])
    assert settle(client) == [SampledEpisode(None, parts[-1])]


def test_draws_are_uniform_over_the_unrolls_of_all_replicas(tmp_path: Path) -> None:
    """Draws are uniform over the unrolls of both replicas: a chi-square test over all of them."""
    network = Network(tmp_path, 2)
    client = client_of(network)
    client._random = np.random.default_rng(3)
    for unrolls in UNROLLS[:3]:
        insert(client, *unrolls)
    settle(client)
    held = [process.store.num_unrolls for process in network.processes if process is not None]
    assert min(held) >= 5
    assert held[0] != held[1]
    counts: dict[tuple[object, ...], int] = {}
    for _ in range(20):
        client.request(100 * sum(held) // 20, whole_episodes=False)
        (sample,) = settle(client)
        assert isinstance(sample, SampledUnrolls)
        for unroll in sample.unrolls:
            place = (*unroll.part.key, unroll.first_step)
            counts[place] = counts.get(place, 0) + 1
    assert len(counts) == sum(held)
    expected = sum(counts.values()) / len(counts)
    freedom = len(counts) - 1
    # Wilson and Hilferty's approximation of the 99.9 % quantile.
    assert (
        sum((count - expected) ** 2 / expected for count in counts.values())
        < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    )


@pytest.mark.parametrize("fault", ["silent", "disconnected", "empty"])
def test_draws_avoid_a_replica_until_it_can_answer_again(tmp_path: Path, fault: str) -> None:
    """A replica may fall silent, lose its connection, or restart without its episodes."""
    network = Network(tmp_path, 2)
    client = client_of(network)
    for unrolls in UNROLLS:
        insert(client, *unrolls)
    settle(client)
    intact = network.processes[0]
    network.processes[0] = restarted = Process(tmp_path / "new", replica=Replica(0, 2)) if fault == "empty" else None
    network.dealers[0].connected = fault != "disconnected"

    def drawn_from() -> set[int]:
        client.request(50, whole_episodes=False)
        client.request(5, whole_episodes=True)
        samples = settle(client)
        assert sum(len(sample.unrolls) if isinstance(sample, SampledUnrolls) else 10 for sample in samples) == 50 + 5 * 10
        keys = [unroll.part.key for sample in samples if isinstance(sample, SampledUnrolls) for unroll in sample.unrolls]
        return {replica_of(key, 2) for key in keys}

    assert drawn_from() == {1}
    assert drawn_from() == {1}
    network.processes[0] = restarted or intact
    network.dealers[0].connected = True
    for slot, rows in enumerate(STREAMS, SLOTS):
        insert(client, *unrolls_of(LAYOUT, rows, slot=slot))
    settle(client)
    drawn_from()  # a replica that was silent is asked, but its first answer may be late
    assert drawn_from() == {0, 1}


def test_a_client_that_starts_beside_a_dead_replica_draws_from_the_others(tmp_path: Path) -> None:
    network = Network(tmp_path, 2)
    network.processes[0] = None
    client = client_of(network)
    assert client.num_steps_stored is None
    insert(client, *UNROLLS[0])
    client.poll(0.1)
    client.poll(0.1)
    healthy = network.processes[1]
    assert healthy is not None
    assert client.num_steps_stored == healthy.store.num_steps > 0
    client.request(20, whole_episodes=False)
    for _ in range(20):
        if samples := client.poll(0.1):
            break
    (sample,) = samples
    assert isinstance(sample, SampledUnrolls)
    assert len(sample.unrolls) == 20


def test_pending_unrolls_are_bounded_and_the_dropped_are_counted(tmp_path: Path) -> None:
    network = Network(tmp_path, 1)
    network.processes[0] = None
    client = client_of(network, max_pending_bytes=600)
    for unroll in UNROLLS[0][:8]:
        insert(client, unroll)
    assert client.num_dropped_unrolls >= 8 - client.num_unacknowledged > 0  # of some a piece was kept
    assert 0 < client.pending_bytes <= 600 + RECORD_BYTES
    client.poll(30.0)
    assert network.dealers[0].sent.count("insert_pieces") > replay_client.WINDOW
    assert len(network.dealers[0].outgoing) + network.dealers[0].sent.count("insert_pieces") < 50
    network.processes[0] = Process(tmp_path)
    settle(client)
    assert client.pending_bytes == 0


def test_unrolls_for_a_dead_replica_displace_none_of_the_others(tmp_path: Path) -> None:
    network = Network(tmp_path, 2)
    network.processes[0] = None
    client = client_of(network, max_pending_bytes=2 * 500)
    for slot in range(SLOTS):
        for unroll in UNROLLS[slot]:
            insert(client, unroll)
            client.poll(0.1)
    assert client.num_dropped_unrolls > 0
    assert 0 < client.pending_bytes <= 500 + RECORD_BYTES
    healthy = network.processes[1]
    assert healthy is not None
    keys = [EpisodeKey(0, 4, (1 << 20) >> LINK_BITS, slot, number) for slot in range(SLOTS) for number in COMPLETE]
    assert sorted(healthy.held()) == [key for key in keys if replica_of(key, 2) == 1]


def test_a_small_budget_still_leaves_each_replica_one_message(tmp_path: Path) -> None:
    network = Network(tmp_path, 1)
    client = client_of(network, max_pending_bytes=1)
    insert(client, *UNROLLS[0][:3])
    insert(client, *UNROLLS[0][3:6])
    assert (client.num_unacknowledged, client.num_dropped_unrolls) == (1, 3)
    settle(client)
    insert(client, *UNROLLS[1][:3])
    assert (client.num_unacknowledged, client.num_dropped_unrolls) == (1, 3)


def test_large_draws_and_inserts_are_split_into_bounded_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(tmp_path, 1)
    client = client_of(network)
    unrolls = UNROLLS[0] * 20
    insert(client, *unrolls)
    num_messages = -(-len(pieces_of(unrolls)) // MAX_INSERTED_RECORDS)
    assert client.num_unacknowledged == num_messages > 1
    monkeypatch.setattr(replay_client, "INSERT_BYTES", 2 * RECORD_BYTES)
    insert(client, *UNROLLS[0][:6])
    assert client.num_unacknowledged >= num_messages + 3
    client.request(2 * MAX_SAMPLED_UNROLLS + 7, whole_episodes=False)
    (sample,) = settle(client)
    assert isinstance(sample, SampledUnrolls)
    assert len(sample.unrolls) == 2 * MAX_SAMPLED_UNROLLS + 7


def test_requests_to_an_empty_replay_are_repeated_slowly(tmp_path: Path) -> None:
    network = Network(tmp_path, 1)
    client = client_of(network)
    client.request(4, whole_episodes=False)
    for _ in range(50):
        assert client.poll(0.1) == []
    assert network.dealers[0].sent.count("sample_unrolls") <= 1 + 5.0 / replay_client.EMPTY_SECONDS
    assert (client.num_steps_stored, client.num_requests) == (0, 1)
    insert(client, *UNROLLS[0])
    assert len(settle(client)) == 1


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_answers_of_a_hostile_server_are_dropped_or_valid(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """The bytes of an answer are changed anywhere: it is rejected, or everything written stays within the arrays."""
    network = Network(tmp_path_factory.mktemp("replay"), 1)
    client = client_of(network)
    insert(client, *UNROLLS[0])
    settle(client)
    client.request(3, whole_episodes=data.draw(st.booleans()))
    client.poll(0.0)
    network.poll(0.0)
    dealer = network.dealers[0]
    frames = [bytearray(frame) for frame in dealer.incoming.pop()]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = frames[data.draw(st.integers(0, len(frames) - 1))]
        if frame and data.draw(st.integers(0, 9)):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        else:
            del frame[data.draw(st.integers(0, max(len(frame) - 1, 0))) :]
    dealer.incoming.append([bytes(frame) for frame in frames])
    for sample in client.poll(0.0):
        unrolls = sample.unrolls if isinstance(sample, SampledUnrolls) else sample.part.unrolls() if sample.part is not None else []
        for unroll in unrolls[:20]:
            got = LAYOUT.allocate(1)
            try:
                unroll.write_into(got, 0)
            except MalformedMessage:
                continue
            except OverflowError as error:
                raise AssertionError from error


@pytest.mark.parametrize(
    ("name", "value", "follows"),
    [
        ("environment_slot", 2**31, False),
        ("task_id", 5, False),
        ("episode_steps", 0, False),
        ("num_pieces", 2**62, False),
        ("episode_id", 99, True),
        ("agent", 1, True),
    ],
)
def test_impossible_parts_and_those_of_another_episode_are_dropped(tmp_path: Path, name: str, value: int, *, follows: bool) -> None:
    network = Network(tmp_path, 1, part_bytes=1)
    client = client_of(network)
    insert(client, *UNROLLS[0])
    settle(client)
    part: EpisodePart | None = None
    while part is None or part.episode_steps <= LAYOUT.new_steps:
        client.request(1, whole_episodes=True)
        (sample,) = settle(client)
        assert isinstance(sample, SampledEpisode)
        part = sample.part
    if follows:
        client.request_next(part)
    else:
        client.request(1, whole_episodes=True)
    network.poll(0.0)
    head, parts, *rest = network.dealers[0].incoming.pop()
    table = np.frombuffer(parts, PART).copy()
    table[name] = value
    network.dealers[0].incoming.append([head, table.tobytes(), *rest])
    assert client.poll(0.0) == []
    assert client.num_malformed == 1
