"""Complete episodes on disk: RUN/replay/<index>/ has the blocks of memory as files, and state.json, which lists the valid ones.

A block's file is written once and never changed; its name contains the block's number and its used length. So a snapshot writes only new
data. Open episodes are in a file that is named after its digest. A snapshot is atomic, because state.json is written last, and until then
the previous state.json refers to files that still exist.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from herd.files import TEMPORARY, FileError, make_folder, open_file, read_file, read_sealed, replace_file, sealed
from herd.protocols.replay.records import RECORD_ALIGNMENT, check_pieces, read_records, record_of, replica_of
from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import Count, Identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from herd.protocols.replay.pieces import PieceLayout
    from herd.protocols.replay.records import Episode, EpisodeKey
    from herd.rpc.serving import AtMostOnce
    from herd.transport import Frame
    from herd_replay.assembly import Assembler
    from herd_replay.exchange import Replica
    from herd_replay.store import EpisodeStore

DIRECTORY = "replay"
STATE = "state.json"
_BLOCKS = re.compile(r"(block-\d+-\d+|open(-[0-9a-f]{16})?)\.bin(\.tmp)?")
EMPTY_EPISODES_BYTES = 64 << 20
"""Size of open episodes without a piece in their file: two for each environment. Pieces take fewer bytes there than in memory."""
Digest = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]


class SnapshotError(Exception):
    """A snapshot cannot be written or used; one line that names the file."""


class ForeignSnapshotError(SnapshotError):
    """An intact snapshot of another contract. Whether to continue without it is the operator's decision."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SavedBlock(_Model):
    """A file of consecutive records."""

    number: Annotated[int, Field(ge=0, le=2**53)]
    """Numbers of later blocks are greater."""
    used: Count
    first: Annotated[int, Field(ge=0, multiple_of=RECORD_ALIGNMENT)]
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
    """Digest of the file of episodes that were open when the process ended (`open_name`). None in a snapshot of a running process."""
    writers: tuple[tuple[Identifier, Count], ...]
    """Each writer, and its last message that is contained in the blocks."""

    @model_validator(mode="after")
    def _check_blocks(self) -> SavedState:
        if any(one.number >= other.number for one, other in pairwise(self.blocks)) or any(each.first >= each.used for each in self.blocks):
            raise ValueError("blocks that are not in order, or empty")
        return self


class Block(NamedTuple):
    """A block at the time of a snapshot; ``content`` no longer changes."""

    number: int
    first: int
    content: memoryview


@dataclass(frozen=True, slots=True)
class Captured:
    """The data of a snapshot: captured between two messages, and written later."""

    blocks: tuple[Block, ...]
    open: Callable[[], Iterable[Episode]] | None
    """Open episodes, read as they are written, so that they take no memory: the assembler must not change until then."""
    writers: tuple[tuple[str, int], ...]


class Restored(NamedTuple):
    """The result of restoring a snapshot."""

    lost: list[str]
    """A line for each skipped part."""
    open_steps: int
    """Agent steps of episodes that are still open."""


def open_name(digest: str) -> str:
    """Return the name of the file of open episodes. The file of the snapshot before must exist until this one is complete."""
    return f"open-{digest[:16]}.bin"


def capture(store: EpisodeStore, assembler: Assembler, writers: AtMostOnce[None], *, is_last: bool) -> Captured:
    """Capture the present state. ``is_last``: include open episodes, because the process ends."""
    oldest = next(store.episodes(), None)
    blocks = [
        Block(number, oldest.offset if number == oldest.segment else 0, segment.view[: segment.used])
        for number, segment in store.log.segments.items()
        if oldest is not None and number >= oldest.segment
    ]
    return Captured(tuple(blocks), assembler.open_episodes if is_last else None, tuple(writers.all()))


class SnapshotFolder:
    """The folder with the snapshots of one replica. To be used by one thread at a time."""

    def __init__(self, directory: Path, *, run: str, contract: str, replica: Replica, layout: PieceLayout) -> None:
        self.directory = directory / DIRECTORY / str(replica.index)
        self._identity = {"run": run, "contract": contract, "index": replica.index, "replicas": replica.count}
        self._replica = replica
        self._layout = layout
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
            replace_file(self.directory / STATE, sealed(state))
        except OSError as error:
            raise SnapshotError(f"{error.filename or self.directory}: cannot be written: {error.strerror or error}") from error
        self._written = {block.name: block for block in blocks}
        self._clean({*self._written, *([open_name(digest)] if digest is not None else [])})

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
            self._load_open(state.open, store, assembler, lost)
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

    def _save_open(self, episodes: Callable[[], Iterable[Episode]]) -> str:
        """Write the open episodes; returns the digest. Reads them twice, because it is in the name of their file."""
        digest = hashlib.sha256()
        for part in self._records_of(episodes()):
            digest.update(part)
        replace_file(self.directory / open_name(digest.hexdigest()), self._records_of(episodes()))
        return digest.hexdigest()

    def _records_of(self, episodes: Iterable[Episode]) -> Iterator[Frame]:
        """Yield the parts of the episodes' records, without episodes whose pieces contradict each other: they can never be complete."""
        for episode in episodes:
            heads = [(piece.first_step, piece.num_steps, piece.num_rows, len(piece.packed), *piece.versions) for piece in episode.pieces]
            with suppress(MalformedMessage):
                check_pieces(heads, episode.num_steps, self._layout)
                yield from record_of(episode)

    def _clean(self, needed: set[str]) -> None:
        """Remove files of older snapshots, and incomplete files of a killed process."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                if path.name not in needed and (_BLOCKS.fullmatch(path.name) or path.name == STATE + TEMPORARY):
                    path.unlink()

    def _state(self, lost: list[str]) -> SavedState | None:
        path = self.directory / STATE
        try:
            state = SavedState.model_validate_json(read_sealed(path))
        except FileNotFoundError:
            return None
        except FileError as error:
            lost.append(str(error))
            return None
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
        memory = memoryview(content)[block.first :]
        offsets: list[tuple[int, EpisodeKey, int]] = []
        keys: set[EpisodeKey] = set()
        try:
            for offset, episode in self._records(_taking(memory), len(memory)):
                if not episode.is_whole or episode.key in keys or store.find(episode.key) is not None:
                    lost.append(f"{path}: is damaged: an episode that is not complete, or twice")
                    return
                keys.add(episode.key)
                offsets.append((block.first + offset, episode.key, episode.num_steps))
        except MalformedMessage as error:
            lost.append(f"{path}: is damaged: {error.reason}")
            return
        self._written[block.name] = block
        segment = store.log.begin(block.number, block.used)
        segment.view[: block.used] = content
        segment.used = block.used
        for offset, key, num_steps in offsets:
            segment.num_live += 1
            store.adopt(segment, offset, key, num_steps)
            assembler.finished(key)

    def _load_open(self, digest: str, store: EpisodeStore, assembler: Assembler, lost: list[str]) -> None:
        path = self.directory / open_name(digest)
        try:
            with open_file(path, assembler.max_bytes + EMPTY_EPISODES_BYTES) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    lost.append(f"{path}: is damaged")
                    return
                num_bytes = file.tell()
                file.seek(0)
                # One record after the other, so that each is in memory only once.
                for _, part in self._records(file.read, num_bytes):
                    if (episode := assembler.insert(part)) is not None:
                        store.append(episode)
        except OSError as error:
            lost.append(f"{path}: cannot be read: {error.strerror or error}")
        except MalformedMessage as error:
            lost.append(f"{path}: is damaged: {error.reason}")

    def _records(self, take: Callable[[int], Frame], num_bytes: int) -> Iterator[tuple[int, Episode]]:
        """Yield the episodes of a file with their positions.

        Raises:
            MalformedMessage: a record is invalid, or belongs to another replica.

        """
        for position, episode in read_records(take, num_bytes, self._layout):
            if replica_of(episode.key, self._replica.count) != self._replica.index:
                raise MalformedMessage("an episode of another replica")
            yield position, episode


def _taking(memory: memoryview) -> Callable[[int], memoryview]:
    """Return a function that returns the next bytes of ``memory``, without copying them."""
    position = 0

    def take(size: int) -> memoryview:
        nonlocal position
        position += size
        return memory[position - size : position]

    return take
