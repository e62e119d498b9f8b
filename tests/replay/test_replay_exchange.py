"""The handler, its store and its snapshots against a model of plain lists, under loss, repetition, reordering, kills and stops."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from herd_replay import snapshot
from herd_replay.exchange import Replica
from herd_replay.meters import Meters
from herd_replay.snapshot import ForeignSnapshotError, SnapshotError, SnapshotFolder

from herd.files import replace_file
from herd.protocols.compression import compress
from herd.protocols.replay.messages import Inserted, InsertPieces, Sampled, SampleEpisode, SamplePart
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.records import PART, PIECE, Episode, EpisodeKey, Piece, read_records, replica_of
from herd.rpc.codec import MalformedMessage
from herd.telemetry.telemetry import Telemetry
from tests.failing_disks import no_space_beyond
from tests.replay.played_games import oracle_slice, play, unrolls_of
from tests.replay.replica import CONTRACT, LAYOUT, OPEN_BYTES, Process, insertion, pieces_of


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


UNROLLS = unrolls_of(LAYOUT, play(LAYOUT, [3, 7, 5, 9], seed=1))
"""Unrolls of one environment; the first game lies within the first unroll."""


def test_a_game_received_from_another_writer_is_stored_once(process: Process, tmp_path: Path) -> None:
    """A killed learner had inserted unrolls that actors then send again to its successor."""
    process.insert(UNROLLS[:2], 1, writer=1)
    assert len(process.held()) == 1
    process.insert(UNROLLS[:1], 1, writer=2)
    assert len(process.held()) == 1
    process.save(is_last=False)
    again = Process(tmp_path)
    again.insert(UNROLLS[:1], 1, writer=3)
    assert len(again.held()) == 1
    assert again.assembler.num_dropped["late"] == 1


def test_episodes_of_different_agents_and_processes_are_distinct(process: Process) -> None:
    process.insert(UNROLLS[:2], 1, writer=1)
    process.insert(UNROLLS[:2], 1, writer=2, agent=1)
    process.insert(UNROLLS[:2], 1, writer=3, incarnation=(1 << 20) + 1)  # another link of the same process
    process.insert(UNROLLS[:2], 2, writer=3, incarnation=1 << 21)
    assert {(key.agent, key.process) for key in process.held()} == {(0, 1 << 12), (1, 1 << 12), (0, 1 << 13)}
    assert len(process.held()) == 3


FORGED = [
    ("agent", 1),  # not that of the message
    ("agent", -1),
    ("environment_slot", 2**31),
    ("episode_id", 2**63 - 1),
    ("task_id", 5),
    ("episode_steps", 2**40),
    ("episode_rows", 0),
    ("first_step", 1),
    ("num_steps", 0),
    ("num_pieces", -1),
    ("num_pieces", 2),
    ("num_pieces", 2**62),
    ("piece first_step", -1),
    ("piece first_step", 2**62),
    ("piece num_steps", 0),
    ("piece num_steps", LAYOUT.new_steps + 1),
    ("piece num_rows", 3),
    ("piece num_rows", 5),
    ("piece num_bytes", 2**62),
    ("piece num_bytes", 3),
    ("piece end_updates", -1),
]
"""Numbers in the record of the first game of `UNROLLS`, whose only piece has 3 steps and 4 rows."""


def forge(record: bytearray, name: str, value: int) -> None:
    """Replace a number of a record in place."""
    *of_piece, name = name.split()
    table = np.frombuffer(record, PIECE if of_piece else PART, 1, PART.itemsize if of_piece else 0)
    table[name] = value


@pytest.mark.parametrize(("name", "value"), FORGED)
def test_malformed_pieces_are_acknowledged_and_dropped(process: Process, name: str, value: int) -> None:
    message, whole = insertion(pieces_of(UNROLLS[:2]), 1)
    payload = bytearray(whole)
    forge(payload, name, value)
    answer = process.ask(message, bytes(payload))
    assert answer.outcome == "malformed"
    assert isinstance(answer.malformed, MalformedMessage)
    inserted = answer.message
    assert isinstance(inserted, Inserted)
    assert inserted.sequence == 1
    assert (process.assembler.num_open, process.held()) == (0, [])
    assert process.insert(UNROLLS[:2], 2).outcome == "inserted"


def test_a_message_of_another_size_or_for_another_replica_is_dropped(tmp_path: Path) -> None:
    process = Process(tmp_path, replica=Replica(0, 2))
    mine = [piece for piece in pieces_of(UNROLLS) if replica_of(piece.key, 2) == 0]
    assert 0 < len(mine) < len(pieces_of(UNROLLS))
    message, payload = insertion(mine, 1)
    wrong: list[tuple[InsertPieces, list[bytes]]] = [
        (message, []),
        (message, [payload, payload]),
        (message, [payload[:-1]]),
        (message, [payload + bytes(8)]),
        (message.model_copy(update={"num_records": len(mine) + 1}), [payload]),
        (message, [insertion(pieces_of(UNROLLS), 1)[1]]),
    ]
    for number, (request, frames) in enumerate(wrong, 1):
        assert process.ask(request.model_copy(update={"id": number}), *frames).outcome == "malformed"
    assert process.assembler.num_open == 0


def test_pieces_that_contradict_each_other_are_neither_stored_nor_saved(process: Process, tmp_path: Path) -> None:
    """A hostile actor gives a game two ends: in the middle of it a row would be missing."""
    first, *_ = pieces_of(UNROLLS[:1])
    (piece,) = first.pieces
    compressed = compress("zstd", bytes(process.layout.num_bytes(3, 3)))
    short = piece._replace(num_rows=3, packed=compressed)
    later = piece._replace(first_step=3, num_rows=3, packed=compressed)
    process.ask(*insertion([first._replace(pieces=(short,))], 1))
    other = first.key._replace(environment_slot=1)
    parts = [Episode(other, 0, 0, (later,)), Episode(other, 0, 3, (short,)), Episode(other, 0, 6, ())]
    for sequence, part in enumerate(parts, 2):
        assert process.ask(*insertion([part], sequence)).outcome == "inserted"
    assert process.held() == [first.key]  # the last row of a game may be missing
    process.save(is_last=True)
    again = Process(tmp_path)
    assert (again.restored.lost, again.held(), again.assembler.num_open) == ([], [first.key], 0)


def test_an_episode_longer_than_the_capacity_is_stored_alone(tmp_path: Path) -> None:
    process = Process(tmp_path, capacity=6)
    held = set()
    for sequence, unroll in enumerate(UNROLLS, 1):
        process.insert([unroll], sequence)
        held.add(tuple(key.episode_id for key in process.held()))
    assert held == {(0,), (1,), (2,), (3,)}  # of 3, 7, 5 and 9 steps
    assert not process.assembler.num_discarded


@pytest.mark.parametrize("part_bytes", [1, 2000, 8000, 1 << 20])
def test_parts_of_a_long_episode_are_bounded_and_cover_it(tmp_path: Path, part_bytes: int) -> None:
    rows = play(LAYOUT, [2, 301, 9], seed=5)  # the long game begins within an unroll
    process = Process(tmp_path, capacity=1000, part_bytes=part_bytes)
    process.insert(unrolls_of(LAYOUT, rows)[:1], 1)
    for sequence, unroll in enumerate(unrolls_of(LAYOUT, rows)[1:], 2):
        process.insert([unroll], sequence)
    long = next(key for key in process.held() if key.episode_id == 1)
    parts = process.sample_part(long, 0)
    while parts[-1].stop_step < 301:
        parts += process.sample_part(long, parts[-1].stop_step)
    assert all(before.is_followed_by(after) for before, after in pairwise(parts))
    sizes = [sum(map(len, part._packed)) for part in parts]
    assert all(part.num_steps == LAYOUT.new_steps or size <= part_bytes for part, size in zip(parts[:-1], sizes, strict=False))
    assert len(parts) in {1: {-(-301 // LAYOUT.new_steps)}, 1 << 20: {1}}.get(part_bytes, range(2, 60))
    for part in parts:
        for drawn in part.unrolls():
            got = LAYOUT.allocate(1)
            drawn.write_into(got, 0)
            for name, expected in oracle_slice(LAYOUT, rows, 1, drawn.first_step).items():
                np.testing.assert_array_equal(got[name], expected, err_msg=name)
    assert process.sample_part(long, 301) == []
    assert process.sample_part(long._replace(episode_id=9), 0) == []


def test_agent_steps_of_later_parts_count_as_sampled(process: Process) -> None:
    process.insert(unrolls_of(LAYOUT, play(LAYOUT, [9] * 3, seed=5)), 1)
    key = process.held()[0]
    telemetry = Telemetry("replay", "run")
    meters = Meters(telemetry)
    steps = 0
    for first_step in (0, 4):
        answer = process.ask(SamplePart(id=1, run="run", agent=0, contract=CONTRACT, episode=key, first_step=first_step))
        (part,) = process.read(answer)
        steps += part.num_steps
        meters.answered(answer)
    assert f"herd_replay_sampled_agent_steps_total {float(steps)}" in telemetry.exposition().decode().splitlines()


def test_an_evicted_episode_is_not_continued(tmp_path: Path) -> None:
    process = Process(tmp_path, capacity=20)
    unrolls = unrolls_of(LAYOUT, play(LAYOUT, [9] * 6, seed=5))
    process.insert(unrolls[:3], 1)
    (first,) = process.held()
    assert [part.first_step for part in process.sample_part(first, 4)] == [4]
    process.insert(unrolls[3:], 2)
    assert first not in process.held()
    assert process.sample_part(first, 4) == []


def test_answers_tell_how_many_episodes_were_discarded(process: Process) -> None:
    process.insert([UNROLLS[0], *UNROLLS[2:]], 1)  # an unroll of the second game is missing
    (part,) = process.sample_unrolls(1)
    answer = process.ask(SampleEpisode(id=1, run="run", agent=0, contract=CONTRACT))
    sampled = answer.message
    assert isinstance(sampled, Sampled)
    assert (part.key.agent, sampled.stored.num_discarded) == (0, 1)


def test_damaged_snapshot_files_lose_only_their_contents(process: Process, tmp_path: Path) -> None:
    for sequence, unroll in enumerate(UNROLLS, 1):
        process.insert([unroll], sequence)
    process.save(is_last=True)
    (block,) = tmp_path.glob("replay/0/block-*")
    whole = block.read_bytes()
    block.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    damaged = Process(tmp_path)
    assert [line.split(": ", 1)[1] for line in damaged.restored.lost] == ["is damaged"]
    assert damaged.held() == []
    assert damaged.writers.last("7") == len(UNROLLS)
    block.unlink()
    assert "cannot be read" in Process(tmp_path).restored.lost[0]
    state = tmp_path / "replay" / "0" / "state.json"
    state.write_text(state.read_text()[:-9])
    assert Process(tmp_path).restored.lost == [f"{state}: is incomplete"]


def test_a_last_snapshot_that_fails_leaves_the_open_episodes_of_the_one_before(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.insert(UNROLLS[:2], 1)
    process.save(is_last=True)
    again = Process(tmp_path)
    restored = again.restored
    again.insert(UNROLLS[2:], 2)

    def replace(path: Path, content: Any) -> None:
        if path.name == snapshot.STATE:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace_file(path, content)

    monkeypatch.setattr(snapshot, "replace_file", replace)
    with pytest.raises(SnapshotError, match="No space left"):
        again.save(is_last=True)
    assert restored.open_steps > 0
    assert Process(tmp_path).restored == restored


def forge_snapshot(directory: Path, file: str, change: Callable[[bytearray], None], **of_state: Any) -> None:
    """Change a file of the snapshot in ``directory``, and fields of its state or of its only block, and write the right digests."""
    folder = directory / "replay" / "0"
    (path,) = folder.glob(file)
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    state = json.loads((folder / "state.json").read_bytes())["state"]
    digest = hashlib.sha256(content).hexdigest()
    if file == "open-*":
        state["open"] = digest
        path.rename(path.with_name(snapshot.open_name(digest)))
    else:
        state["blocks"][0] |= {"sha256": digest} | {name: value for name, value in of_state.items() if name != "blocks"}
        state["blocks"] *= of_state.get("blocks", 1)
    text = json.dumps(state)
    (folder / "state.json").write_text(f'{{"sha256":"{hashlib.sha256(text.encode()).hexdigest()}","state":{text}}}\n')


@pytest.mark.parametrize(("name", "value"), FORGED)
@pytest.mark.parametrize("file", ["block-*", "open-*"])
def test_a_forged_record_with_the_right_digest_is_skipped_with_one_line(tmp_path: Path, file: str, name: str, value: int) -> None:
    if (name, value) == ("agent", 1) or (file == "open-*" and name == "num_steps"):
        return  # possible there
    process = Process(tmp_path)
    first, *_ = pieces_of(UNROLLS)
    process.ask(*insertion([first if file == "block-*" else first._replace(num_steps=0)], 1))
    process.save(is_last=True)
    forge_snapshot(tmp_path, file, lambda content: forge(content, name, value))
    again = Process(tmp_path)
    (line,) = again.restored.lost
    assert "is damaged: " in line
    assert again.held() == []
    assert again.insert(UNROLLS, 2).outcome == "inserted"
    again.save(is_last=True)
    assert Process(tmp_path).restored.lost == []


@pytest.mark.parametrize(
    "forged",
    [{"blocks": 2}, {"number": 2**62}, {"first": 4}, {"first": 1 << 20}, {"used": 2**62}, {"used": -1}, {"first": 8}],
    ids=str,
)
def test_a_forged_state_with_the_right_digest_is_skipped_with_one_line(process: Process, tmp_path: Path, forged: dict[str, int]) -> None:
    process.insert(UNROLLS[:2], 1)
    process.save(is_last=False)
    forge_snapshot(tmp_path, "block-*", lambda _: None, **forged)
    again = Process(tmp_path)
    assert (len(again.restored.lost), again.held()) == (1, [])
    again.insert(UNROLLS[2:], 2)
    again.save(is_last=True)


def test_an_episode_that_is_stored_twice_or_by_another_replica_is_skipped(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.insert(UNROLLS[:2], 1)
    process.save(is_last=False)
    (block,) = tmp_path.glob("replay/0/block-*")
    twice = block.with_name(f"block-0-{2 * block.stat().st_size}.bin")
    twice.write_bytes(block.read_bytes() * 2)
    forge_snapshot(tmp_path, twice.name, lambda _: None, used=twice.stat().st_size)
    assert [line.partition("damaged: ")[2] for line in Process(tmp_path).restored.lost] == ["an episode that is not complete, or twice"]
    (key,) = process.held()
    other = Replica(1 - replica_of(key, 2), 2)
    elsewhere = Process(tmp_path / "two", replica=other)
    elsewhere.store.append(next(read_records(io.BytesIO(block.read_bytes()).read, block.stat().st_size, process.layout))[1])
    elsewhere.save(is_last=False)
    again = Process(tmp_path / "two", replica=other)
    assert [line.partition("damaged: ")[2] for line in again.restored.lost] == ["an episode of another replica"]


def test_open_episodes_are_saved_and_restored_without_a_second_copy_in_memory(tmp_path: Path) -> None:
    """They may take as much memory as the assembler allows, far more than one block."""
    size = OPEN_BYTES // 16
    layout = replace(LAYOUT, frame_shape=(size, 1, 1))
    process, pieces = Process(tmp_path, layout=layout), PieceLayout(layout)
    random = np.random.default_rng(0)
    for number in range(14):
        rows = 1 + (number == 0)
        packed = compress("zstd", random.bytes(pieces.num_bytes(rows, 1)))
        piece = Piece(number, 1, rows, (1, 2, 3, number), packed)
        process.assembler.insert(Episode(EpisodeKey(0, 0, 0, number % 3, 0), 4, 0, (piece,)))
    tracemalloc.start()
    try:
        process.save(is_last=True)
        assert tracemalloc.get_traced_memory()[1] < 2 * size
        again = Process(tmp_path, layout=layout)
        assert tracemalloc.get_traced_memory()[1] < 16 * size
    finally:
        tracemalloc.stop()
    assert (again.restored.lost, again.restored.open_steps) == ([], 14)
    assert list(again.assembler.open_episodes()) == list(process.assembler.open_episodes())


def test_open_episodes_take_their_memory_from_the_oldest_complete_ones(tmp_path: Path) -> None:
    limit = 64 * 4096
    process = Process(tmp_path, capacity=1 << 30, memory_bytes=limit)

    def taken() -> int:
        return process.store.num_bytes + process.assembler.total_bytes

    complete = unrolls_of(LAYOUT, play(LAYOUT, [40] * 100, seed=3))
    for sequence, unroll in enumerate(complete, 1):
        process.insert([unroll], sequence)
        assert taken() <= limit
    evicted, full = process.store.num_evicted["memory"], process.store.num_bytes
    assert evicted > 0
    assert taken() > 0.9 * limit
    for sequence, unroll in enumerate(unrolls_of(LAYOUT, play(LAYOUT, [600], seed=4), slot=1), len(complete) + 1):
        process.insert([unroll], sequence)
        assert taken() <= limit
    assert process.assembler.num_steps >= 590
    assert process.store.num_evicted["memory"] > evicted
    assert process.store.num_bytes < full - 50_000


def test_a_snapshot_of_another_run_stops_the_service(process: Process, tmp_path: Path) -> None:
    process.insert(UNROLLS, 1)
    process.save(is_last=False)
    folder = SnapshotFolder(tmp_path, run="run", contract="d1" * 32, replica=Replica(0, 1), layout=process.layout)
    with pytest.raises(ForeignSnapshotError, match="remove"):
        folder.load(process.store, process.assembler, process.writers)
    scaled = SnapshotFolder(tmp_path, run="run", contract=CONTRACT, replica=Replica(0, 2), layout=process.layout)
    assert "replicas has changed" in scaled.load(process.store, process.assembler, process.writers).lost[0]


def test_a_snapshot_writes_new_blocks_and_removes_evicted_ones(tmp_path: Path) -> None:
    process = Process(tmp_path, capacity=1000)
    unrolls = unrolls_of(LAYOUT, play(LAYOUT, [40] * 40, seed=3))
    written: list[set[str]] = []
    for sequence, unroll in enumerate(unrolls, 1):
        process.insert([unroll], sequence)
        if sequence % 100 == 0:
            process.save(is_last=False)
            written.append({path.name for path in tmp_path.glob("replay/0/block-*")})
            numbers = [stored.segment for stored in process.store.episodes()]
            assert {int(name.split("-")[1]) for name in written[-1]} == set(numbers)
    assert written[0] & written[1]  # a full block is not written again
    assert not written[0] & written[-1]  # a block is removed with its episodes
    (tmp_path / "replay" / "0" / "block-99-7.bin.tmp").write_bytes(b"half")
    process.save(is_last=False)
    assert not list(tmp_path.glob("replay/0/*.tmp"))


def test_a_full_disk_leaves_the_previous_snapshot_intact(process: Process, tmp_path: Path) -> None:
    process.insert(UNROLLS[:2], 1)
    process.save(is_last=False)
    process.insert(UNROLLS[2:], 2)
    with no_space_beyond(100), pytest.raises(SnapshotError, match="cannot be written"):
        process.save(is_last=True)
    again = Process(tmp_path)
    assert (again.restored.lost, len(again.held())) == ([], 1)
    process.save(is_last=True)
    assert Process(tmp_path).held() == process.held()
