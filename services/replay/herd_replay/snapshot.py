"""Complete episodes on disk: RUN/replay/<index>/ has the blocks of memory as files, and state.json, which lists the valid ones.

A block's file is written once and never changed; its name contains the block's number and its used length. So a snapshot writes only new
data. It is atomic, because state.json is written last, and until then the previous state.json refers to files that still exist.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from herd.files import MAX_JSON_BYTES, TEMPORARY, make_folder, open_file, read_file, replace_file
from herd.protocols.replay.pieces import EpisodeKey
from herd.protocols.replay.samples import PART, PIECE
from herd.rpc.envelope import Identifier
from herd_replay.assembly import Episode, Piece
from herd_replay.records import Record, record_parts
from herd_replay.segments import RECORD_ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from herd.rpc.serving import AtMostOnce
    from herd_replay.assembly import Assembler
    from herd_replay.exchange import Replica
    from herd_replay.store import EpisodeStore

DIRECTORY = "replay"
STATE = "state.json"
OPEN = "open.bin"
_STATE = re.compile(rb'\{"sha256":"([0-9a-f]{64})","state":(.*)\}\n', re.DOTALL)
_BLOCKS = re.compile(r"(block-\d+-\d+\.bin|open\.bin)(\.tmp)?")
EMPTY_EPISODES_BYTES = 64 << 20
"""Size of open episodes without a piece in open.bin: two for each environment. Pieces take fewer bytes there than in memory."""
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Digest = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]


class SnapshotError(Exception):
    """A snapshot cannot be written or used; one line that names the file."""


class ForeignSnapshotError(SnapshotError):
    """An intact snapshot of another contract. Whether to continue without it is the operator's decision."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SavedBlock(_Model):
    """A file of consecutive records."""

    number: Count
    used: Count
    first: Count
    """Offset of the oldest record that is still needed."""
    sha256: Digest

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"block-{self.number}-{self.used}.bin"


class SavedState(_Model):
    """The contents of state.json."""

    format: Literal[1] = 1
    run: str
    contract: str
    index: Count
    replicas: Count
    blocks: tuple[SavedBlock, ...]
    """The oldest first."""
    open: Digest | None
    """Digest of open.bin, which contains episodes that were open when the process ended. None in a snapshot of a running process."""
    writers: tuple[tuple[Identifier, Count], ...]
    """Each writer, and its last message that is contained in the blocks."""


class Block(NamedTuple):
    """A block at the time of a snapshot; ``content`` no longer changes."""

    number: int
    first: int
    content: memoryview


@dataclass(frozen=True, slots=True)
class Captured:
    """The data of a snapshot: captured between two messages, and written later."""

    blocks: tuple[Block, ...]
    open: Iterator[bytes] | None
    """Parts of open.bin, made as they are written, so that they take no memory: the assembler must not change until then."""
    writers: tuple[tuple[str, int], ...]


class Restored(NamedTuple):
    """The result of restoring a snapshot."""

    lost: list[str]
    """A line for each skipped part."""
    open_steps: int
    """Agent steps of episodes that are still open."""


def capture(store: EpisodeStore, assembler: Assembler, writers: AtMostOnce[None], *, is_last: bool) -> Captured:
    """Capture the present state. ``is_last``: include open episodes, because the process ends."""
    oldest = next(store.episodes(), None)
    blocks = [
        Block(number, oldest.offset if number == oldest.segment else 0, segment.view[: segment.used])
        for number, segment in store.log.segments.items()
        if oldest is not None and number >= oldest.segment
    ]
    return Captured(tuple(blocks), _open_records(assembler) if is_last else None, tuple(writers.all()))


class SnapshotFolder:
    """The folder with the snapshots of one replica. To be used by one thread at a time."""

    def __init__(self, directory: Path, *, run: str, contract: str, replica: Replica) -> None:
        self.directory = directory / DIRECTORY / str(replica.index)
        self._identity = {"run": run, "contract": contract, "index": replica.index, "replicas": replica.count}
        self._written: dict[str, SavedBlock] = {}
        """Files on disk that are known to be intact, by name."""

    def save(self, captured: Captured) -> None:
        """Write a snapshot, and remove files that only the previous one needs.

        Raises:
            SnapshotError: the disk is full or there is no permission; the previous snapshot still exists.

        """
        try:
            make_folder(self.directory)
            blocks = tuple(map(self._save_block, captured.blocks))
            digest = None
            if captured.open is not None:
                digest = self._save_open(captured.open)
            state = SavedState(**self._identity, blocks=blocks, open=digest, writers=captured.writers).model_dump_json()
            replace_file(self.directory / STATE, f'{{"sha256":"{hashlib.sha256(state.encode()).hexdigest()}","state":{state}}}\n')
        except OSError as error:
            raise SnapshotError(f"{error.filename or self.directory}: cannot be written: {error.strerror or error}") from error
        self._written = {block.name: block for block in blocks}
        self._clean({*self._written, *([OPEN] if digest is not None else [])})

    def load(self, store: EpisodeStore, assembler: Assembler, writers: AtMostOnce[None]) -> Restored:
        """Load the newest snapshot into empty objects.

        Raises:
            ForeignSnapshotError: it belongs to another run or contract.

        """
        lost: list[str] = []
        state = self._state(lost)
        if state is None:
            return Restored(lost, 0)
        for block in state.blocks:
            self._load_block(block, store, assembler, lost)
        for writer, sequence in state.writers:
            writers.answered(writer, sequence)
        if state.open is not None:
            self._load_open(state.open, assembler, lost)
        return Restored(lost, assembler.num_steps)

    def _save_block(self, block: Block) -> SavedBlock:
        name = f"block-{block.number}-{len(block.content)}.bin"
        known = self._written.get(name)
        if known is None:
            digest = hashlib.sha256(block.content).hexdigest()
            replace_file(self.directory / name, [block.content])
            known = SavedBlock(number=block.number, used=len(block.content), first=block.first, sha256=digest)
            self._written[name] = known  # even if a later file fails, it need not be written again
        return known.model_copy(update={"first": block.first})

    def _save_open(self, parts: Iterator[bytes]) -> str:
        """Write open.bin; returns its digest."""
        digest = hashlib.sha256()

        def counted() -> Iterator[bytes]:
            for part in parts:
                digest.update(part)
                yield part

        replace_file(self.directory / OPEN, counted())
        return digest.hexdigest()

    def _clean(self, needed: set[str]) -> None:
        """Remove files of older snapshots, and incomplete files of a killed process."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                if path.name not in needed and (_BLOCKS.fullmatch(path.name) or path.name == STATE + TEMPORARY):
                    path.unlink()

    def _state(self, lost: list[str]) -> SavedState | None:
        path = self.directory / STATE
        try:
            content = read_file(path, MAX_JSON_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            lost.append(f"{path}: cannot be read: {error.strerror or error}")
            return None
        found = _STATE.fullmatch(content)
        if found is None or hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
            lost.append(f"{path}: is damaged")
            return None
        try:
            state = SavedState.model_validate_json(found[2])
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            lost.append(f"{path}: is not a replay state: {'.'.join(map(str, first['loc']))}: {first['msg']}")
            return None
        if (state.run, state.contract) != (self._identity["run"], self._identity["contract"]):
            raise ForeignSnapshotError(
                f"{path}: belongs to another run or contract (env, network, algorithm): resume with its settings, or "
                f"remove {self.directory.parent} to start empty"
            )
        if (state.index, state.replicas) != (self._identity["index"], self._identity["replicas"]):
            lost.append(f"{path}: belongs to replica {state.index} of {state.replicas}: replay_service.replicas has changed")
            return None
        return state

    def _load_block(self, block: SavedBlock, store: EpisodeStore, assembler: Assembler, lost: list[str]) -> None:
        path = self.directory / block.name
        try:
            content = read_file(path, block.used)
        except OSError as error:
            lost.append(f"{path}: cannot be read: {error.strerror or error}")
            return
        if len(content) != block.used or hashlib.sha256(content).hexdigest() != block.sha256:
            lost.append(f"{path}: is damaged")
            return
        self._written[block.name] = block
        segment = store.log.begin(block.number, max(block.used, 1))
        segment.view[: block.used] = content
        segment.used = block.used
        for offset, record in _records(segment.view[: block.used], block.first):
            segment.num_live += 1
            store.adopt(segment, offset, record.key, int(record.part[0]["num_steps"]))
            assembler.finished(record.key)

    def _load_open(self, digest: str, assembler: Assembler, lost: list[str]) -> None:
        path = self.directory / OPEN
        try:
            with open_file(path, assembler.max_bytes + EMPTY_EPISODES_BYTES) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    lost.append(f"{path}: is damaged")
                    return
                file.seek(0)
                _read_open(file, assembler)
        except OSError as error:
            lost.append(f"{path}: cannot be read: {error.strerror or error}")


def _records(content: memoryview, begin: int) -> Iterator[tuple[int, Record]]:
    """Yield consecutive records of contents that have matched their digest."""
    while begin < len(content):
        record = Record(content[begin:])
        yield begin, record
        begin += record.num_bytes + -record.num_bytes % RECORD_ALIGNMENT


def _open_records(assembler: Assembler) -> Iterator[bytes]:
    """Yield open episodes as records; ``episode_steps`` is 0 if the end is not known."""
    for key, known in assembler.open_episodes():
        pieces = tuple(known.pieces[step] for step in sorted(known.pieces))
        parts = record_parts(Episode(key, known.task_id, known.end or 0, pieces))
        size = sum(map(len, parts))
        yield from parts
        yield bytes(-size % RECORD_ALIGNMENT)


def _read_open(file: BufferedReader, assembler: Assembler) -> None:
    """Insert the episodes of an intact open.bin, one piece after the other, so that each is in memory only once."""
    while head := file.read(PART.itemsize):
        part = np.frombuffer(head, PART)[0]
        key = EpisodeKey(*(int(part[name]) for name in EpisodeKey._fields))
        task_id, end = int(part["task_id"]), int(part["episode_steps"]) or None
        table = np.frombuffer(file.read(int(part["num_pieces"]) * PIECE.itemsize), PIECE).tolist()
        for first_step, num_steps, num_rows, num_bytes, *versions in table:
            lineages = (versions[0], versions[1], versions[2], versions[3])
            assembler.insert(key, task_id, Piece(first_step, num_steps, num_rows, lineages, file.read(num_bytes)), end)
        if not table:
            assembler.insert(key, task_id, None, end)
        file.read(-file.tell() % RECORD_ALIGNMENT)
