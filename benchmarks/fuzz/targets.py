"""Fuzz targets that run in one process. Any exception except the expected error, or a change by a refused message, is a crash."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import msgpack
import numpy as np
from herd_inference.exchange import ActingHandler
from herd_inference.sessions import Batches, Sessions
from herd_paramserver.leases import Liveness, PlaceLeases
from herd_paramserver.requests import RootHandler
from herd_paramserver.store import WeightsStore
from herd_replay.assembly import Assembler
from herd_replay.exchange import ReplayHandler, Replica
from herd_replay.segments import SegmentLog
from herd_replay.snapshot import ForeignSnapshotError, SnapshotFolder, capture
from herd_replay.store import EpisodeStore

from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.protocols.bandit.messages import BANDIT
from herd.protocols.inference.messages import INFERENCE, Act, Acted
from herd.protocols.inference.rows import ActingLayout, pack_fields, read_answer
from herd.protocols.population.messages import POPULATION
from herd.protocols.replay.messages import REPLAY, InsertPieces, Sampled, SampleEpisode, SamplePart, SampleUnrolls
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.records import Episode, record_of
from herd.protocols.replay.samples import read_parts
from herd.protocols.unrolls.arrays import receive_arrays
from herd.protocols.unrolls.messages import UNROLLS, Unrolls
from herd.protocols.weights.messages import WEIGHTS, GetWeights, LeaseIndex, PublishHeartbeat, PublishSlice, StalePublish
from herd.rpc.codec import MAX_REASON_CHARACTERS, Conversation, MalformedMessage, encode
from herd.rpc.envelope import PROTOCOL_VERSION, Refused
from herd.rpc.serving import AtMostOnce, Received, RequestRefused, ServedRun, read
from herd.run.checkpoints import CheckpointError
from herd.transport import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

GOLDEN = Path(__file__).parents[2] / "tests" / "wire" / "golden" / f"v{PROTOCOL_VERSION}"
LAYOUT = UnrollLayout(2, 2, (64, 32, 1), discrete(3), 3, state_size=4, instruction_length=2)
"""Number of unrolls in the golden message."""
ACTING = ActingLayout(LAYOUT)
MAX_UNROLLS = 4
"""A limit, because memory is allocated before the arrays are checked; a learner allows no more than it granted."""
RUN, CONTRACT = "pong", "c0" * 32


def join(frames: Sequence[bytes]) -> bytes:
    """Join frames to one input, with a length of 16 bits before each."""
    return b"".join(struct.pack("<H", len(frame)) + frame for frame in frames)


def split(data: bytes) -> list[bytes]:
    """Split an input into frames: the inverse of `join`, defined for any input."""
    frames: list[bytes] = []
    position = 0
    while position + 2 <= len(data) and len(frames) < 40:
        (length,) = struct.unpack_from("<H", data, position)
        frames.append(data[position + 2 : position + 2 + length])
        position += 2 + length
    return frames or [b""]


def golden(prefix: str = "") -> list[list[bytes]]:
    """Return the golden messages whose names begin with ``prefix``."""
    return [[bytes.fromhex(line) for line in path.read_text().split("\n")[:-1]] for path in sorted(GOLDEN.glob(f"{prefix}*.hex"))]


CONVERSATIONS = (UNROLLS, WEIGHTS, BANDIT, REPLAY, POPULATION, INFERENCE)
SERVED = ServedRun("an.address", RUN, CONTRACT, range(3))
STRANGER = Peer(b"stranger")


def asked(conversation: Conversation, frames: Sequence[bytes]) -> Received | None:
    """Return the request in ``frames`` as a server reads it; None if it is refused."""
    try:
        return Received(STRANGER, read(conversation, SERVED, STRANGER, frames), [memoryview(frame) for frame in frames[1:]])
    except RequestRefused as refused:
        encode(Refused(reason=refused.reason))
        return None


def fuzz_header(data: bytes) -> None:
    """Decode a header. A decoded header must survive another round; a refusal must be loggable."""
    for conversation in CONVERSATIONS:
        try:
            message = conversation.decode(data)
        except MalformedMessage as malformed:
            error = malformed
        else:
            again = encode(message)[0]
            assert encode(conversation.decode(again))[0] == again
            continue
        assert error.reason.isprintable()
        assert error.reason.isascii()
        assert len(error.reason) <= MAX_REASON_CHARACTERS
        assert error.label in ("header", "size", "protocol", "unexpected")


def fuzz_unrolls(data: bytes) -> None:
    """Decode unrolls: arrays of the layout with valid values, or the one error."""
    frames = split(data)
    with suppress(MalformedMessage):
        message = UNROLLS.decode(frames[0])
        if isinstance(message, Unrolls) and message.num_unrolls <= MAX_UNROLLS:
            arrays = receive_arrays(frames[1:], message.num_unrolls, LAYOUT, message.compression)
            for field in LAYOUT.fields:
                assert arrays[field.name].shape == (message.num_unrolls, *field.shape)
                assert field.dtype.kind != "f" or np.isfinite(arrays[field.name]).all()


def fuzz_weights(data: bytes) -> None:
    """Send two requests to the root of the parameter servers; refused requests do not change weights and leases."""
    store = WeightsStore(max_version_bytes=4096)
    liveness = Liveness(1, now=0.0)
    leases = PlaceLeases(liveness, now=0.0, lease_seconds=30.0, max_leases=4)
    handler = RootHandler(stores=(store,), leases=leases, liveness=liveness)
    frames = split(data)
    for start in (0, 2):
        if start >= len(frames):
            return
        before = (store.visible, store.newest, store.num_bytes, leases.holders())
        refused = True
        with suppress(MalformedMessage, RequestRefused):
            request = asked(WEIGHTS, frames[start : start + 2])
            if request is not None and request.message.agent == 0:
                message = request.message
                # Mutation never finds a SHA-256, so half of the slices get the right digest.
                if isinstance(message, PublishSlice) and request.payloads and message.updates % 2:
                    message = message.model_copy(update={"digest": hashlib.sha256(request.payloads[0]).hexdigest()})
                answer = handler.answer(request._replace(message=message), 0.0)
                refused = isinstance(answer.message, StalePublish)
                if answer.message is not None:
                    encode(answer.message)
        if refused:
            assert (store.visible, store.newest, store.num_bytes, leases.holders()) == before
        assert store.num_bytes <= 2 * 4096


class Replay:
    """A replica of the replay service."""

    def __init__(self, layout: PieceLayout, *, num_agents: int = 3) -> None:
        self.layout = layout
        self.num_agents = num_agents
        self.assembler = Assembler(1 << 20)
        self.store = EpisodeStore(
            capacity_steps=1000, max_bytes=lambda: 1 << 26, unroll_length=layout.unroll.new_steps, log=SegmentLog(1 << 14)
        )
        self.writers: AtMostOnce[None] = AtMostOnce(100, in_order=True)
        self.handler = ReplayHandler(
            layout=layout,
            replica=Replica(0, 1),
            assembler=self.assembler,
            store=self.store,
            writers=self.writers,
            random=np.random.default_rng(0),
            part_bytes=1 << 10,
        )

    def state(self) -> tuple[int, ...]:
        """Return a state that changes with every accepted message."""
        return self.assembler.num_open, self.assembler.num_steps, self.store.inserted_episodes

    def draw(self) -> None:
        """Draw and read everything that a learner may ask for: a learner can use all of it, except the contents of packed pieces."""
        who = {"id": 1, "run": RUN, "agent": 0, "contract": CONTRACT}
        part = SamplePart(**who, episode=(2, 5, 0, 0, 0), first_step=self.layout.unroll.new_steps)
        for draw in (SampleUnrolls(**who, num_unrolls=5), SampleEpisode(**who), part):
            drawn = self.handler.answer(Received(STRANGER, draw))
            assert isinstance(drawn.message, Sampled)
            encode(drawn.message)
            _read_sample(drawn.message, [bytes(frame) for frame in drawn.payloads], damaged=True)


PIECES = PieceLayout(LAYOUT)


def fuzz_replay(data: bytes) -> None:
    """Send one message to a replica of the replay service and draw from it; or give a learner a replica's possible answer."""
    frames = split(data)
    try:
        message = REPLAY.decode(frames[0])
        if isinstance(message, Sampled):
            _read_sample(message, frames[1:])
            return
        if (request := asked(REPLAY, frames)) is None:
            return
        replay = Replay(PIECES)
        before = replay.state()
        answer = replay.handler.answer(request)
    except MalformedMessage:
        return
    if answer.outcome != "inserted":
        assert replay.state() == before
    replay.draw()


def fuzz_snapshot(data: bytes) -> None:
    """Restore replay from a forged snapshot with the right digests: what is restored can be drawn and saved again."""
    state, block, opened = [*split(data), b"", b"", b""][:3]
    with tempfile.TemporaryDirectory() as directory, mock.patch("os.fsync"):  # a power failure is not what is tested
        folder = SnapshotFolder(Path(directory), run=RUN, contract=CONTRACT, replica=Replica(0, 1), layout=PIECES)
        folder.directory.mkdir(parents=True)
        with suppress(ValueError, KeyError, TypeError, IndexError, msgpack.UnpackException):  # not a state any more
            fields = msgpack.unpackb(state)
            state = json.dumps(fields).encode()
            fields["blocks"][0]["sha256"] = hashlib.sha256(block).hexdigest()
            fields["open"] = hashlib.sha256(opened).hexdigest()
            (folder.directory / f"block-{int(fields['blocks'][0]['number'])}-{len(block)}.bin").write_bytes(block)
            fields["blocks"][0]["used"] = len(block)
            state = json.dumps(fields).encode()
        (folder.directory / f"open-{hashlib.sha256(opened).hexdigest()[:16]}.bin").write_bytes(opened)
        (folder.directory / "state.json").write_bytes(b'{"sha256":"%s","state":%s}\n' % (hashlib.sha256(state).hexdigest().encode(), state))
        replay = Replay(PIECES)
        with suppress(ForeignSnapshotError):
            restored = folder.load(replay.store, replay.assembler, replay.writers)
            assert all("\n" not in line for line in restored.lost)
        replay.draw()
        folder.save(capture(replay.store, replay.assembler, replay.writers, is_last=True))
        again = Replay(PIECES)
        assert folder.load(again.store, again.assembler, again.writers).lost == []
        assert again.state()[:2] == replay.state()[:2]


def fuzz_inference(data: bytes) -> None:
    """Send two requests to the inference service, and give an actor the service's possible answer; then serve an honest client."""
    batches = Batches(3, batch_size=4, deadline_seconds=0.0)
    sessions = Sessions(4, batches.discard)
    handler = ActingHandler(max_request=4, layout=ACTING, sessions=sessions, batches=batches)
    frames = split(data)
    for start in (0, 3):
        if start >= len(frames):
            break
        payloads = frames[start + 1 : start + 3]
        before = (len(sessions), sessions.num_environments, len(batches))
        try:
            if isinstance(INFERENCE.decode(frames[start]), Acted):
                read_answer(payloads, 2, ACTING, has_state=True)
                return
            if (request := asked(INFERENCE, [frames[start], *payloads])) is None:
                continue
            decision = handler.take(request, 0.0)
        except (MalformedMessage, RequestRefused):
            assert (len(sessions), sessions.num_environments, len(batches)) == before
            continue
        if decision.outcome != "new":
            assert (len(sessions), sessions.num_environments, len(batches)) == before
        assert len(batches) <= len(sessions)
        assert sessions.num_environments <= 4
    honest = split(_asking(has_state=True))
    request = asked(INFERENCE, honest)
    assert request is not None
    assert handler.take(request._replace(peer=Peer(b"honest")), 0.0).outcome == "new"


def inference_seeds() -> list[bytes]:
    """Return rows with and without their state, one after the other, and an answer."""
    requests = [_asking(has_state=has_state) for has_state in (True, False)]
    answer = {field.name: np.zeros((2, *field.shape), field.dtype) for field in ACTING.answer_fields(has_state=True)}
    acted = [bytes(encode(Acted(id=1, lineage=1, updates=2))[0]), pack_fields(ACTING.answer_fields(has_state=True), answer)]
    return [requests[0] + requests[1], *requests, join(acted)]


def _asking(*, has_state: bool) -> bytes:
    fields = ACTING.state_fields if has_state else ACTING.row_fields
    arrays = {field.name: np.zeros((2, *field.shape), field.dtype) for field in fields}
    shape = ACTING.planes_shape(has_state=has_state)
    assert shape is not None
    act = Act(run=RUN, agent=2, contract=CONTRACT, num_environments=2, id=2 - has_state, has_state=has_state, wants_state=True)
    return join([bytes(encode(act)[0]), pack_fields(fields, arrays), bytes(2 * int(np.prod(shape)))])


def _read_sample(message: Sampled, frames: Sequence[bytes], *, damaged: bool = False) -> None:
    """Read an answer of replay; ``damaged``: packed pieces may be, but nothing else."""
    out = LAYOUT.allocate(1)
    for part in read_parts(message, frames, PIECES)[:8]:
        for step in range(part.first_step, part.stop_step, LAYOUT.new_steps)[:8]:
            with suppress(*([MalformedMessage] if damaged else [])):
                part.unroll_at(step).write_into(out, 0)


ODD_VALUES: tuple[object, ...] = (
    0,
    1,
    -1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    0.5,
    float("nan"),
    float("inf"),
    None,
    True,
    "",
    "x" * 2000,
    b"x",
    [],
    {},
    [[]],
)


def mutate_header(header: bytes, random: Random) -> bytes:
    """Change or remove one field of a header, possibly in a nested map; return the header unchanged if it is not a map."""
    try:
        fields = msgpack.unpackb(header)
    except (ValueError, msgpack.UnpackException):
        return header
    inside = fields
    while isinstance(inside, dict) and inside and random.random() < 0.6:
        name = random.choice(sorted(map(str, inside)))
        value = inside.get(name)
        if isinstance(value, list) and value and isinstance(value[-1], dict) and random.random() < 0.8:
            inside = value[-1]
            continue
        if random.random() < 0.15:
            inside.pop(name, None)
        elif isinstance(value, list) and value and random.random() < 0.5:
            value.extend(value[:1] * random.randrange(40))
        else:
            inside[name] = random.choice(ODD_VALUES)
        break
    try:
        packed: bytes = msgpack.packb(fields)
    except (OverflowError, ValueError):
        return header
    return packed


def mutate(data: bytes, max_bytes: int, random: Random, mutate_bytes: Callable[[bytes, int], bytes], *, framed: bool) -> bytes:
    """Mutate ``data`` by one step, with ``mutate_bytes`` or in a header's fields. Mutated bytes alone rarely pass MessagePack."""
    if random.random() < 0.3:
        return mutate_bytes(data, max_bytes)
    frames = split(data) if framed else [data]
    position = random.choice([0, random.randrange(len(frames))])
    if position == 0 and random.random() < 0.7:
        frames[0] = mutate_header(frames[0], random)
    elif frames[position]:
        frames[position] = mutate_bytes(frames[position], min(len(frames[position]) + 64, 60_000))
    mutated = join(frames) if framed else frames[0]
    return mutated[:max_bytes]


def _games() -> Iterator[list[Episode]]:
    """Yield the pieces of games of one to three steps, complete or ending in the next unroll."""
    for end in (1, 2):
        arrays = LAYOUT.allocate(2)
        arrays["row_valid"][...] = True
        arrays["game_reset"][0, 0] = arrays["game_reset"][:, end] = True
        arrays["row_valid"][:, end - 1] = False
        arrays["index_in_episode"][1], arrays["episode_id"][1] = 2 - end, 1
        arrays["game_reset"][1, 0] = end == 2
        arrays["frames"][...] = np.arange(arrays["frames"].size).reshape(arrays["frames"].shape) % 7
        segments = [segment for unroll in range(2) for segment in PIECES.cut(arrays, unroll, agent=2, actor_index=5, incarnation=5)]
        yield [PIECES.pack(arrays, segment) for segment in segments]


def inserting(pieces: Sequence[Episode], *, run: str = RUN, contract: str = CONTRACT, client: str = "1", **changes: int) -> list[bytes]:
    """Return a message that inserts these pieces."""
    numbers = {"agent": pieces[0].key.agent, "id": 1, "oldest": 1, "num_records": len(pieces), **changes}
    message = InsertPieces(run=run, contract=contract, client=client, **numbers)
    return [bytes(encode(message)[0]), b"".join(part for piece in pieces for part in record_of(piece))]


def replay_seeds() -> list[bytes]:
    """Return insertions of games, and answers about them."""
    seeds = []
    for pieces in _games():
        frames = inserting(pieces)
        seeds.append(join(frames))
        replay = Replay(PIECES)
        request = asked(REPLAY, frames)
        assert request is not None
        assert replay.handler.answer(request).outcome == "inserted"
        who = {"id": 1, "run": RUN, "agent": 0, "contract": CONTRACT}
        for draw in (SampleUnrolls(**who, num_unrolls=3), SampleEpisode(**who)):
            drawn = replay.handler.answer(Received(STRANGER, draw))
            assert drawn.message is not None
            seeds += [join(list(map(bytes, encode(draw)))), join(list(map(bytes, [*encode(drawn.message), *drawn.payloads])))]
    return seeds


def snapshot_seeds() -> list[bytes]:
    """Return the three files of replay's snapshots; the state is a map in MessagePack, whose fields are mutated one by one."""
    seeds = []
    for pieces in _games():
        replay = Replay(PIECES)
        for piece in pieces:
            if (episode := replay.assembler.insert(piece)) is not None:
                replay.store.append(episode)
        replay.writers.answered("writer", 7)
        with tempfile.TemporaryDirectory() as directory:
            folder = SnapshotFolder(Path(directory), run=RUN, contract=CONTRACT, replica=Replica(0, 1), layout=PIECES)
            folder.save(capture(replay.store, replay.assembler, replay.writers, is_last=True))
            state = msgpack.packb(json.loads((folder.directory / "state.json").read_bytes())["state"])
            (block,), (opened,) = folder.directory.glob("block-*"), folder.directory.glob("open-*")
            seeds.append(join([state, block.read_bytes(), opened.read_bytes()]))
    return seeds


def header_seeds() -> list[bytes]:
    """Return all golden headers."""
    return [frames[0] for frames in golden()]


def unrolls_seeds() -> list[bytes]:
    """Return golden unrolls, raw and compressed."""
    return [join(frames) for frames in golden("unrolls")]


def weights_seeds() -> list[bytes]:
    """Return every golden header followed by a slice, and requests that belong together."""
    payload = b"weights"
    slice_of = {"run": RUN, "agent": 0, "contract": CONTRACT, "lineage": 1, "updates": 1}
    digest = hashlib.sha256(payload).hexdigest()
    first = bytes(encode(PublishSlice(**slice_of, index=0, count=2, digest=digest))[0])
    second = bytes(encode(PublishSlice(**slice_of, index=1, count=2, digest=digest))[0])
    whole = bytes(encode(PublishSlice(**slice_of, index=0, count=1, digest=digest))[0])
    get = bytes(encode(GetWeights(id=1, run=RUN, agent=0, contract=CONTRACT, have=None))[0])
    beat = bytes(encode(PublishHeartbeat(**slice_of, index=0, count=1))[0])
    lease = bytes(encode(LeaseIndex(id=1, run=RUN, client="h", place=(0, 1)))[0])
    pairs = [join([first, payload, second, payload]), join([whole, payload, beat]), join([whole, payload, get]), join([lease]), join([get])]
    return pairs + [join([frames[0], payload]) for frames in golden() if len(frames[0]) < 2**16]


def fuzz_tensors(data: bytes) -> None:
    """Decode a slice of weights: the tensors have at most the size of the input, or the expected error is one line."""
    from herd.run.tensors import decode_weights  # noqa: PLC0415  the only target that needs torch

    try:
        tensors = decode_weights(data)
    except CheckpointError as error:
        said, tensors = str(error), {}
        assert "\n" not in said
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) <= len(data)


def mutate_tensors(data: bytes, random: Random) -> bytes:
    """Change one entry of the header of a slice; return the slice unchanged if it has no header."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        entry = header[random.choice(sorted(header))]
        field = random.choice(sorted(entry))
        odd: object = random.choice([0, 1, -1, 2**31 - 1, 2**31, 2**63, 0.5, None, True, "F64", [], {}])
        if isinstance(entry[field], list) and random.random() < 0.8:
            entry[field].insert(random.randrange(len(entry[field]) + 1), odd)
        else:
            entry[field] = odd
        text = json.dumps(header).encode()
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        return data
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def tensors_seeds() -> list[bytes]:
    """Return weights of every dtype, empty ones and none."""
    import torch  # noqa: PLC0415  as above

    from herd.run.tensors import encode_weights  # noqa: PLC0415

    every = {str(dtype): torch.zeros(2, 3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8)}
    return [encode_weights(every), encode_weights({"empty": torch.empty(0, 3), "scalar": torch.tensor(1.0)}), encode_weights({})]


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]], int]] = {
    "header": (fuzz_header, header_seeds, 2048),
    "unrolls": (fuzz_unrolls, unrolls_seeds, 32_768),
    "weights": (fuzz_weights, weights_seeds, 4096),
    "replay": (fuzz_replay, replay_seeds, 32_768),
    "snapshot": (fuzz_snapshot, snapshot_seeds, 32_768),
    "inference": (fuzz_inference, inference_seeds, 32_768),
    "tensors": (fuzz_tensors, tensors_seeds, 4096),
}
"""Function, seeds, length of the longest input in bytes."""
