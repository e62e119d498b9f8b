"""Fuzzed messages by kind. The decision code, without sockets, predicts the outcome of each, and real processes must count the same."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import msgpack
import numpy as np
from herd_inference.exchange import ActingHandler
from herd_inference.sessions import Batches, Sessions
from herd_learner.intake.ingest import Ingest
from herd_learner.intake.ledger import Ledger
from herd_learner.intake.queue import UnrollQueue
from herd_paramserver.leases import Liveness, PlaceLeases
from herd_paramserver.requests import RootHandler
from herd_paramserver.store import Version, WeightsStore

from benchmarks.fuzz.targets import Replay, golden, inserting, mutate_header
from herd.protocols.bandit.messages import ExchangeTemperatures
from herd.protocols.inference.messages import INFERENCE, Act
from herd.protocols.inference.rows import ActingLayout, pack_fields
from herd.protocols.population.messages import MemberReport, OwnSetting
from herd.protocols.replay.messages import REPLAY, SampleEpisode, SamplePart, SampleUnrolls
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import CreditRequest, Goodbye, Hello, Unrolls
from herd.protocols.weights.messages import (
    WEIGHTS,
    AgentEnded,
    GetWeights,
    LeaseIndex,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    StalePublish,
)
from herd.rpc.codec import Conversation, MalformedMessage, encode
from herd.rpc.serving import Received, RequestRefused, ServedRun, read
from herd.transport import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from herd.contract.unroll import UnrollLayout
    from herd.rpc.envelope import Message

Outcome = tuple[str, str]
"""(counter, label): ``malformed`` and ``refused`` as in /metrics, ``stale`` for a publication, ``answered`` for harmless messages."""
CAPACITY = 64
AHEAD = 2**52
"""A lineage that no learner has: a slice of it is processed until its digest fails."""
OTHER_RUN = "another-run"


class Oracle(Protocol):
    """Predicts the outcome of a message."""

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome | None:
        """Return the outcome in any state that the process reaches in normal operation; None if the message would be accepted."""


class LearnerOracle:
    """A learner without sessions, so that predictions do not depend on any session."""

    def __init__(self, run_id: str, contract: str, layout: UnrollLayout, action_repeat: int) -> None:
        self._reasons: list[str] = []
        self._new_ingest: Callable[[], Ingest] = lambda: Ingest(
            run=ServedRun("actor.learner", run_id, contract, range(1)),
            layout=layout,
            action_repeat=action_repeat,
            ledger=Ledger(),
            queue=UnrollQueue(),
            credit=CreditPool(CAPACITY, expires_seconds=60.0),
            on_episode=lambda *_: None,
            on_unrolls=lambda *_: None,
            on_refused=self._reasons.append,
        )
        self._ingest = self._new_ingest()

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome | None:
        self._reasons.clear()
        try:
            self._ingest.on_message(Peer(peer), frames, 0.0)
        except MalformedMessage as malformed:
            return "malformed", malformed.label
        if not self._reasons:  # a wrong protocol version that mutation made right
            self._ingest = self._new_ingest()
            return None
        (reason,) = self._reasons
        return "refused", reason


class ParameterServerOracle:
    """A root with weights of lineage 1; ``is_replica`` refuses every publication."""

    def __init__(self, run_id: str, contract: str, *, is_replica: bool) -> None:
        self._run = ServedRun("actor.paramserver and learner.paramserver", run_id, contract, range(1))
        self._is_replica = is_replica
        store: WeightsStore[memoryview] = WeightsStore()
        digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # the digest of nothing
        store.publish(Version(1, 0), index=0, count=1, digest=digest, payload=memoryview(b""))
        liveness = Liveness(1, now=0.0)
        leases = PlaceLeases(liveness, now=0.0, lease_seconds=1.0)
        self._root = RootHandler(stores=(store,), leases=leases, liveness=liveness)

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome:
        try:
            message = read(WEIGHTS, self._run, Peer(peer), frames)
            if self._is_replica and isinstance(message, PublishSlice | PublishHeartbeat | AgentEnded):
                return ("refused", "other") if len(frames) - 1 == message.has_payload else ("malformed", "array")
            received = Received(Peer(peer), message, [memoryview(frame) for frame in frames[1:]])
            answer = self._root.answer(received, 0.0)
        except RequestRefused as refused:
            return "refused", refused.label
        except MalformedMessage as malformed:
            return "malformed", malformed.label
        return ("stale", "") if isinstance(answer.message, StalePublish) else ("answered", "")


class ReplayOracle:
    """A replica of the replay service. What it would store is not sent, because its memory must stay flat."""

    def __init__(self, run_id: str, contract: str, layout: UnrollLayout) -> None:
        self._run = ServedRun("--replay", run_id, contract, range(1))
        self._layout = PieceLayout(layout)

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome | None:
        try:
            message = read(REPLAY, self._run, Peer(peer), frames)
            answer = Replay(self._layout).handler.answer(Received(Peer(peer), message, [memoryview(frame) for frame in frames[1:]]))
        except RequestRefused as refused:
            return "refused", refused.label
        except MalformedMessage as malformed:
            return "malformed", malformed.label
        if answer.malformed is not None:
            return "malformed", answer.malformed.label
        return None if answer.outcome == "inserted" else ("answered", "")


class InferenceOracle:
    """An inference service. What it would act on is not sent, so that it knows no environment."""

    def __init__(self, run_id: str, contract: str, layout: UnrollLayout, max_request: int) -> None:
        self._run = ServedRun("--inference", run_id, contract, range(1))
        self._layout = ActingLayout(layout)
        self._max_request = max_request

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome | None:
        batches = Batches(1, batch_size=1, deadline_seconds=0.0)
        sessions = Sessions(self._max_request, batches.discard)
        handler = ActingHandler(max_request=self._max_request, layout=self._layout, sessions=sessions, batches=batches)
        try:
            message = read(INFERENCE, self._run, Peer(peer), frames)
            decision = handler.take(Received(Peer(peer), message, [memoryview(frame) for frame in frames[1:]]), 0.0)
        except RequestRefused as refused:
            return "refused", refused.label
        except MalformedMessage as malformed:
            return "malformed", malformed.label
        return None if decision.outcome == "new" else ("answered", "")


class OfAnotherRun:
    """A server of another run, which refuses every valid request: a bandit or a population."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome:
        try:
            read(self._conversation, ServedRun("an.address", "another", "another", range(1)), Peer(peer), frames)
        except RequestRefused as refused:
            return "refused", refused.label
        except MalformedMessage as malformed:
            return "malformed", malformed.label
        return "answered", ""


def header(message: Message) -> bytes:
    """Return the frame of a header."""
    return bytes(encode(message)[0])


class Hostility:
    """Makes messages of many kinds for one server, and counts them by kind."""

    def __init__(self, random: Random, bases: Sequence[Callable[[Random], list[bytes]]], oracle: Oracle, largest_frame_bytes: int) -> None:
        self._random = random
        self._largest_frame_bytes = largest_frame_bytes
        self._bases = bases
        self._oracle = oracle
        self._golden = golden()
        self.by_kind: Counter[str] = Counter()
        self.expected: Counter[Outcome] = Counter()
        # Each of the others is a share of the total. Messages with many frames or bytes are rarer, because they cost the sender most.
        self._kinds: list[tuple[str, Callable[[], list[bytes]], float]] = [
            ("noise", self._noise, 10),
            ("truncated", self._truncated, 12),
            ("bits flipped", self._flipped, 12),
            ("mistyped", self._mistyped, 20),
            ("non-finite float", self._non_finite, 5),
            ("absurd shapes", self._absurd_shapes, 8),
            ("nested", self._nested, 3),
            ("extension types", self._extension, 3),
            ("meant for another process", self._foreign_message, 8),
            ("surplus frames", self._surplus, 6),
            ("very many frames", self._many_frames, 0.02),
            ("frames reordered", self._reordered, 4),
            ("wrong run, contract, protocol, order", self._as_it_is, 15),
            ("a header of 1 MiB or more", self._largest, 0.003),
        ]
        self._names = [name for name, _, _ in self._kinds]
        self._make = {name: make for name, make, _ in self._kinds}
        self._weights = [weight for _, _, weight in self._kinds]

    def batch(self, number: int) -> list[str]:
        """Return the kinds of the next messages."""
        return self._random.choices(self._names, self._weights, k=number)

    def make(self, kind: str, peer: bytes) -> list[bytes]:
        """Make and count a message of this kind, with its predicted outcome."""
        outcome = None
        while outcome is None:
            frames = self._make[kind]()
            outcome = self._oracle.predict(peer, frames)
        self.by_kind[kind] += 1
        self.expected[outcome] += 1
        return frames

    def _base(self) -> list[bytes]:
        return self._random.choice(self._bases)(self._random)

    def _noise(self) -> list[bytes]:
        return [self._random.randbytes(self._random.randrange(200)) for _ in range(self._random.randrange(1, 4))]

    def _truncated(self) -> list[bytes]:
        frames = self._base()
        return [frames[0][: self._random.randrange(len(frames[0]))], *frames[1:]]

    def _flipped(self) -> list[bytes]:
        frames = self._base()
        data = bytearray(frames[0])
        for _ in range(self._random.randrange(1, 4)):
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return [bytes(data), *frames[1:]]

    def _mistyped(self) -> list[bytes]:
        frames = self._base()
        return [mutate_header(frames[0], self._random), *frames[1:]]

    def _non_finite(self) -> list[bytes]:
        episode: dict[str, float] = {"task_id": 0, "environment_slot": 0, "episode_id": 0, "agent_steps": 1}
        episode["episode_return"] = self._random.choice([float("nan"), float("inf"), float("-inf")])
        return [_unrolls(episodes=[episode])]

    def _absurd_shapes(self) -> list[bytes]:
        shape = [self._random.choice([0, 1, 2**31, 2**62, 2**63 - 1, -1]) for _ in range(self._random.randrange(12))]
        arrays = [{"name": "frames", "dtype": self._random.choice(["|u1", "<f4", "|O", "<f8"]), "shape": shape, "compression": "none"}]
        fields = {"num_unrolls": self._random.choice([1, 0, 65_536, 2**40]), "arrays": arrays * self._random.choice([1, 1, 40])}
        return [_unrolls(**fields), self._random.randbytes(64)]

    def _nested(self) -> list[bytes]:
        depth = self._random.randrange(1, 3000)
        return [self._random.choice([b"\x91", b"\x81\xa0", b"\xdc\x10\x00"]) * depth]

    def _extension(self) -> list[bytes]:
        odd = self._random.choice([msgpack.ExtType(5, b""), msgpack.ExtType(1, b"xx"), msgpack.Timestamp(1), b"bytes"])
        return [msgpack.packb({"type": self._random.choice(["hello", "goodbye", "get_weights", odd]), "run_id": odd})]

    def _foreign_message(self) -> list[bytes]:
        return [frame for frame in self._random.choice(self._golden) if len(frame) < 5000]

    def _surplus(self) -> list[bytes]:
        return [*self._base(), *(self._random.randbytes(16) for _ in range(self._random.randrange(1, 4)))]

    def _many_frames(self) -> list[bytes]:
        return [self._base()[0], *[b"x"] * self._random.randrange(300, 3000)]

    def _reordered(self) -> list[bytes]:
        frames = [*self._base(), self._random.randbytes(8)]
        return frames[::-1]

    def _as_it_is(self) -> list[bytes]:
        return self._base()

    def _largest(self) -> list[bytes]:
        return [b"\xdd" + self._random.randbytes(self._largest_frame_bytes - 1)]


def _unrolls(**changes: object) -> bytes:
    fields = {"type": "unrolls", "sequence": 1, "generated_frames": 1, "num_frames": 1, "num_unrolls": 1, "arrays": [], "episodes": []}
    packed: bytes = msgpack.packb({**fields, **changes})
    return packed


def of_version_2(base: Callable[[Random], list[bytes]]) -> Callable[[Random], list[bytes]]:
    """Return the same messages as of version 2, in which only a hello named its version."""

    def make(random: Random) -> list[bytes]:
        header, *payload = base(random)
        fields = msgpack.unpackb(header)
        del fields["version"]
        return [msgpack.packb(fields), *payload]

    return make


def learner_bases(run_id: str, contract: str) -> list[Callable[[Random], list[bytes]]]:
    """Valid messages that an outsider may send to a learner; none of them opens a session."""

    def hello(**changes: object) -> Callable[[Random], list[bytes]]:
        fields = {"run": run_id, "agent": 0, "contract": contract, "max_unrolls": 4, "oldest_sequence": 1, **changes}
        # Its identity, because a hostile client uses a connection with this name.
        return lambda random: [header(Hello(id=random.getrandbits(20), actor_index=900, incarnation=900, **fields))]

    arrays = {"x": np.zeros(4, np.uint8)}

    def unrolls(random: Random) -> list[bytes]:
        sequence = random.choice([1, 2, 77, 2**63 - 1])
        message = Unrolls(sequence=sequence, generated_frames=2**62, num_frames=8, num_unrolls=random.choice([1, 65_536]))
        return [bytes(frame) for frame in [*encode(message), *pack_arrays(arrays)]]

    return [
        of_version_2(hello()),
        hello(agent=1),
        hello(run=OTHER_RUN),
        hello(contract="d" * 64),
        hello(max_unrolls=60_000),
        unrolls,
        unrolls,
        lambda random: [header(CreditRequest(wanted_unrolls=random.getrandbits(63)))],
        lambda _: [header(Goodbye())],
    ]


def parameter_server_bases(run_id: str, contract: str) -> list[Callable[[Random], list[bytes]]]:
    """Valid messages that an outsider may send to a parameter server; none of them is accepted."""

    def slice_of(run: str, made_with: str) -> Callable[[Random], list[bytes]]:
        def make(random: Random) -> list[bytes]:
            lineage, count = random.choice([0, AHEAD, AHEAD + 1]), random.choice([1, 1, 2, 256])
            index = random.choice([0, 0, 1, 255])
            digest = f"{random.getrandbits(256):064x}"
            where = {
                "run": run,
                "agent": 0,
                "contract": made_with,
                "lineage": lineage,
                "updates": random.getrandbits(40),
                "index": index,
                "count": count,
            }
            return [header(PublishSlice(digest=digest, **where)), random.randbytes(random.randrange(400))]

        return make

    def heartbeat(random: Random) -> list[bytes]:
        return [
            header(PublishHeartbeat(run=run_id, agent=0, contract=contract, lineage=0, updates=random.getrandbits(40), index=0, count=1))
        ]

    def lease(random: Random) -> list[bytes]:
        return [header(LeaseIndex(id=1, run=OTHER_RUN, client=f"{random.getrandbits(64):x}", place=random.choice([None, (0, 5)])))]

    def get(run: str, made_with: str) -> Callable[[Random], list[bytes]]:
        return lambda random: [header(GetWeights(id=random.getrandbits(30), run=run, agent=0, contract=made_with, have=None))]

    return [
        slice_of(run_id, contract),
        slice_of(run_id, contract),
        slice_of(OTHER_RUN, contract),
        slice_of(run_id, "d" * 64),
        heartbeat,
        of_version_2(heartbeat),
        of_version_2(get(run_id, contract)),
        lease,
        get(OTHER_RUN, contract),
        get(run_id, "d" * 64),
        lambda random: [header(ReleaseIndex(run=OTHER_RUN, client=f"{random.getrandbits(64):x}"))],
    ]


def bandit_bases(contract: str) -> list[Callable[[Random], list[bytes]]]:
    """Valid messages that an outsider may send to a bandit."""

    def exchange(random: Random) -> list[bytes]:
        fields = {"agent": 0, "client": str(random.getrandbits(40)), "purpose": "training", "finished": (), "starting": ()}
        return [header(ExchangeTemperatures(id=1 + random.getrandbits(20), run=OTHER_RUN, contract=contract, **fields))]

    return [exchange]


def replay_bases(run_id: str, contract: str, layout: UnrollLayout) -> list[Callable[[Random], list[bytes]]]:
    """Messages that a learner may send to a replay service, half of them for another run."""
    pieces = PieceLayout(layout)
    played = layout.allocate(1)
    played["row_valid"][...] = played["game_reset"][:, layout.burn_in] = True

    def insert(random: Random) -> list[bytes]:
        segments = pieces.cut(played, 0, agent=0, actor_index=random.getrandbits(60), incarnation=random.getrandbits(60))
        frames = inserting([pieces.pack(played, segments[0])], run=run_of(random), contract=contract, client=str(random.getrandbits(63)))
        number = random.randrange(8 * (len(frames[1]) // 8 - 1))
        return [frames[0], frames[1][:number] + random.randbytes(8) + frames[1][number + 8 :]]

    def run_of(random: Random) -> str:
        return random.choice([run_id, OTHER_RUN])

    def who(random: Random) -> dict[str, Any]:
        return {"id": random.getrandbits(20), "run": run_of(random), "agent": 0, "contract": contract}

    return [
        insert,
        lambda random: [header(SampleUnrolls(**who(random), num_unrolls=random.randint(1, 4)))],
        lambda random: [header(SampleEpisode(**who(random)))],
        lambda random: [header(SamplePart(**who(random), episode=(0, 1, 2, 3, 4), first_step=5))],
    ]


def population_bases(contract: str) -> list[Callable[[Random], list[bytes]]]:
    """Valid messages that an outsider may send to a population."""

    def report(random: Random) -> list[bytes]:
        counts = {"env_frames": random.getrandbits(40), "learner_updates": random.getrandbits(30), "num_episodes": random.getrandbits(20)}
        fields = {"agent": random.randrange(4), "contract": contract, "fitness": random.random(), "checkpoint": (1, 2), **counts}
        own = (OwnSetting(key="loss.entropy_cost", value=random.random()),)
        return [header(MemberReport(id=random.getrandbits(20), run=OTHER_RUN, settings=own, applied=None, declined=None, **fields))]

    return [report]


def inference_bases(run_id: str, contract: str, layout: UnrollLayout) -> list[Callable[[Random], list[bytes]]]:
    """Messages that an actor may send to an inference service, half of them for another run."""
    acting = ActingLayout(layout)

    def act(random: Random) -> list[bytes]:
        count, has_state = random.randint(1, 8), random.random() < 0.5
        who = {"run": random.choice([run_id, OTHER_RUN]), "agent": 0, "contract": contract, "num_environments": count}
        fields = acting.state_fields if has_state else acting.row_fields
        packed = pack_fields(fields, {field.name: np.zeros((count, *field.shape), field.dtype) for field in fields})
        where = random.randrange(len(packed) + 1)
        packed = packed[:where] + random.randbytes(4) + packed[where + 4 :]
        shape = acting.planes_shape(has_state=has_state)
        planes = [] if shape is None else [bytes(count * math.prod(shape))]
        return [header(Act(**who, id=1 + random.getrandbits(20), has_state=has_state, wants_state=random.random() < 0.5)), packed, *planes]

    return [act]
