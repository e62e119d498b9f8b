"""Fuzzed messages by kind. The decision code, without sockets, predicts the outcome of each, and real processes must count the same."""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

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
from herd_population.controller import Controller
from herd_population.server import is_allowed

from benchmarks.fuzz.targets import Replay, golden, inserting, mutate_header
from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures
from herd.protocols.compression import compress
from herd.protocols.inference.messages import INFERENCE, Act
from herd.protocols.inference.rows import ActingLayout, pack_fields
from herd.protocols.population.messages import POPULATION, Applied, Declined, MemberReport, OwnSetting
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

    from herd.config.run import RunSettings
    from herd.contract.unroll import UnrollLayout
    from herd.protocols.population.journal import Settings
    from herd.protocols.replay.records import Episode
    from herd.rpc.envelope import Message

Outcome = tuple[str, str]
"""(counter, label): ``malformed`` and ``refused`` as in /metrics, ``stale`` for a publication, ``answered`` for harmless messages."""
CAPACITY = 64
AHEAD = 2**52
"""A lineage that no learner has: a slice of it is processed until its digest fails."""
OTHER_RUN = "another-run"
SWEPT = "loss.entropy_cost"
"""The setting that members of the population have each for themselves."""
IMPOSSIBLE_ORDER = 2**60
ODD_NUMBERS = (-1, 0, 1, 2**24, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))


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


ANSWERED: Outcome = ("answered", "")


class ServerOracle:
    """A server: its handler sees what passes the checks that all servers share."""

    def __init__(
        self, conversation: Conversation, run: ServedRun, handle: Callable[[Received], Outcome | None] = lambda _: ANSWERED
    ) -> None:
        self._conversation, self._run, self._handle = conversation, run, handle

    def predict(self, peer: bytes, frames: list[bytes]) -> Outcome | None:
        try:
            message = read(self._conversation, self._run, Peer(peer), frames)
            return self._handle(Received(Peer(peer), message, [memoryview(frame) for frame in frames[1:]]))
        except RequestRefused as refused:
            return "refused", refused.label
        except MalformedMessage as malformed:
            return "malformed", malformed.label


def parameter_server_oracle(run_id: str, contract: str, *, is_replica: bool) -> Oracle:
    """A root with weights of lineage 1; ``is_replica`` refuses every publication."""
    store = WeightsStore()
    store.publish(Version(1, 0), index=0, count=1, digest=hashlib.sha256(b"").hexdigest(), payload=memoryview(b""))
    liveness = Liveness(1, now=0.0)
    root = RootHandler(stores=(store,), leases=PlaceLeases(liveness, now=0.0, lease_seconds=1.0), liveness=liveness)

    def handle(received: Received) -> Outcome:
        message = received.message
        if is_replica and isinstance(message, PublishSlice | PublishHeartbeat | AgentEnded):
            return ("refused", "other") if len(received.payloads) == message.has_payload else ("malformed", "array")
        return ("stale", "") if isinstance(root.answer(received, 0.0).message, StalePublish) else ANSWERED

    return ServerOracle(WEIGHTS, ServedRun("actor.paramserver and learner.paramserver", run_id, contract, range(1)), handle)


def replay_oracle(run_id: str, contract: str, layout: UnrollLayout) -> Oracle:
    """A replica of the replay service. What it would store is left to `insiders`, which count it, because its memory must stay flat."""

    def handle(received: Received) -> Outcome | None:
        answer = Replay(PieceLayout(layout)).handler.answer(received)
        if answer.malformed is not None:
            return "malformed", answer.malformed.label
        return None if answer.outcome == "inserted" else ANSWERED

    return ServerOracle(REPLAY, ServedRun("--replay", run_id, contract, range(1)), handle)


def inference_oracle(run_id: str, contract: str, layout: UnrollLayout, max_request: int) -> Oracle:
    """An inference service without environments. What it would act on is left to `insiders`, which have sessions."""

    def handle(received: Received) -> Outcome | None:
        batches = Batches(1, batch_size=1, deadline_seconds=0.0)
        sessions = Sessions(max_request, batches.discard)
        handler = ActingHandler(max_request=max_request, layout=ActingLayout(layout), sessions=sessions, batches=batches)
        return None if handler.take(received, 0.0).outcome == "new" else ANSWERED

    return ServerOracle(INFERENCE, ServedRun("--inference", run_id, contract, range(1)), handle)


def population_oracle(run_id: str, contract: str, settings: RunSettings) -> Oracle:
    """A population that has not decided anything yet. What it would note in its journal is not sent."""
    judged: dict[str, bool] = {}

    def allowed(values: Settings) -> bool:
        if (key := repr(values)) not in judged:
            judged[key] = is_allowed(settings, values)  # slow, and few are different
        return judged[key]

    def handle(received: Received) -> Outcome | None:
        report = received.message
        assert isinstance(report, MemberReport)
        if report.applied is not None and report.applied.number < IMPOSSIBLE_ORDER:
            return None  # whether it is possible depends on the reports before it
        controller = Controller(settings.population, num_members=settings.agents, seed=0, is_allowed=allowed)
        if controller.objection(report) is not None:
            return "refused", "other"
        return None if controller.heard(report) else ANSWERED

    return ServerOracle(POPULATION, ServedRun("--population", run_id, contract, range(settings.agents)), handle)


def bandit_oracle() -> Oracle:
    """A bandit of another run, which refuses every valid request."""
    return ServerOracle(BANDIT, ServedRun("--bandit", "another", "another", range(1)))


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
            ("payload damaged", self._damaged, 15),
            ("surplus frames", self._surplus, 6),
            ("very many frames", self._many_frames, 0.02),
            ("frames reordered", self._reordered, 4),
            ("wrong run, contract, protocol, order, contents", self._as_it_is, 15),
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

    def _damaged(self) -> list[bytes]:
        frames = self._base()
        where = self._random.randrange(len(frames))
        frames[where] = damaged(frames[where], self._random)
        return frames

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


def damaged(data: bytes, random: Random) -> bytes:
    """Return a payload with another number of 64 bits, another length, or other bytes."""
    where = random.randrange(len(data) + 1)
    match random.randrange(5):
        case 0 | 1:
            where -= where % 8
            return data[:where] + struct.pack("<q", random.choice(ODD_NUMBERS)) + data[where + 8 :]
        case 2:
            return data[:where]
        case 3:
            return data + data[where:]
        case _:
            return data[:where] + random.randbytes(4) + data[where + 4 :]


def recorded(conversation: Conversation, run_id: str, contract: str) -> list[Callable[[Random], list[bytes]]]:
    """Return the recorded requests of a conversation, as clients of this run would send them; contents and layout remain the others'."""

    def make(random: Random, message: Message, payloads: list[bytes]) -> list[bytes]:
        own: dict[str, object] = {"run": run_id, "contract": contract, "client": str(random.getrandbits(63))}
        changes = {name: own[name] for name in own if name in message.names}
        return [header(message.model_copy(update={"agent": 0, **changes})), *payloads]

    found: list[Callable[[Random], list[bytes]]] = []
    for frames in golden():
        with suppress(MalformedMessage):
            message = conversation.decode(frames[0])
            if message.senders:
                found.append(partial(make, message=message, payloads=frames[1:]))
    return found


def replay_bases(run_id: str, contract: str, layout: UnrollLayout) -> list[Callable[[Random], list[bytes]]]:
    """Messages that a learner of this run may send to a replay service, in its own conversation, and that are wrong in themselves."""
    pieces = PieceLayout(layout)

    def insert(random: Random) -> list[bytes]:
        return insert_of(
            run_id, contract, [a_piece(pieces, random) for _ in range(random.choice([1, 1, 2, 5]))], str(random.getrandbits(63))
        )

    def contradicting(random: Random) -> list[bytes]:
        """One number of the message, of the record or of its piece is wrong."""
        episode, odd = a_piece(pieces, random), random.choice(ODD_NUMBERS)
        (piece,) = episode.pieces
        match random.randrange(6):
            case 0:
                episode = episode._replace(key=episode.key._replace(**{random.choice(episode.key._fields): odd}))
            case 1:
                episode = episode._replace(**{random.choice(["task_id", "num_steps"]): odd})
            case 2:
                episode = episode._replace(pieces=(piece, random.choice([piece, piece._replace(first_step=odd)])))
            case 3:
                piece = piece._replace(**{random.choice(["first_step", "num_steps", "num_rows"]): odd})
                episode = episode._replace(pieces=(piece,))
            case 4:
                bomb = compress("zstd", bytes(random.choice([0, 1 << 10, 4 << 20])))
                episode = episode._replace(pieces=(piece._replace(packed=random.choice([bomb, b"", b"x"])),))
            case _:
                wrong = {random.choice(["id", "oldest"]): random.choice([2, 9, 2**62]), "num_records": random.choice([1, 2, 256])}
                return insert_of(run_id, contract, [episode], str(random.getrandbits(63)), **wrong)
        return insert_of(run_id, contract, [episode], str(random.getrandbits(63)))

    def draw(random: Random) -> list[bytes]:
        who = {"id": random.getrandbits(20), "run": random.choice([run_id, run_id, OTHER_RUN]), "agent": 0, "contract": contract}
        numbers = [random.choice([0, 1, 2**31, 2**63 - 1]) for _ in range(6)]
        part = SamplePart(**who, episode=tuple(numbers[:5]), first_step=numbers[5])
        return [header(random.choice([SampleUnrolls(**who, num_unrolls=random.choice([1, 4, 256])), SampleEpisode(**who), part]))]

    return [insert, insert, *[contradicting] * 4, draw, *recorded(REPLAY, run_id, contract)]


def a_piece(pieces: PieceLayout, random: Random, *, begins: bool | None = None) -> Episode:
    """Return what an unroll of a game that nobody played adds to it: its beginning, or any other part."""
    begins = random.random() < 0.5 if begins is None else begins
    layout = pieces.unroll
    played = layout.allocate(1)
    played["row_valid"][...] = True
    played["index_in_episode"][0] = 0 if begins else layout.new_steps * random.randrange(1, 50)
    played["game_reset"][:, layout.burn_in] = begins
    (segment,) = pieces.cut(played, 0, agent=0, actor_index=random.getrandbits(60), incarnation=random.getrandbits(60))
    return pieces.pack(played, segment)


def insert_of(run_id: str, contract: str, episodes: Sequence[Episode], client: str, **changes: int) -> list[bytes]:
    """Return a message that inserts these pieces as agent 0, whichever agent they name."""
    return inserting(episodes, run=run_id, contract=contract, client=client, **{"agent": 0, **changes})


def population_bases(run_id: str, contract: str) -> list[Callable[[Random], list[bytes]]]:
    """Messages that a learner of this run may send to a population; most report what no member of it can be."""
    keys, values = [SWEPT, SWEPT, SWEPT, "loss.no_such", "stop.env_frames", ""], [0.01, 0.01, -1.0, 1e38, 10**18, True, "x", None]

    def report(random: Random) -> list[bytes]:
        counts = {"env_frames": random.getrandbits(63), "learner_updates": random.getrandbits(30), "num_episodes": random.getrandbits(20)}
        own = tuple(
            OwnSetting(key=random.choice(keys) or "k" * 128, value=random.choice(values)) for _ in range(random.choice([1, 1, 0, 2, 64]))
        )
        applied = Applied(number=2**63 - 1 - random.getrandbits(40), env_frames=1, learner_updates=1)
        orders = {
            "applied": random.choice([None, None, applied]),
            "declined": random.choice([None, Declined(number=random.choice([1, 2**63 - 1]), reason="\x1b[2J" * 100)]),
        }
        counts |= {"agent": random.choice([0, 1, 1, 2, 255]), "id": random.getrandbits(20)}
        run = random.choice([run_id, run_id, run_id, OTHER_RUN])
        fitness = random.choice([None, None, 0.5, 1e308])
        checkpoint = random.choice([None, (1, 2), (2**63 - 1, 2**63 - 1)])
        return [header(MemberReport(run=run, contract=contract, settings=own, fitness=fitness, checkpoint=checkpoint, **counts, **orders))]

    return [report, report, *recorded(POPULATION, run_id, contract)]


def inference_bases(run_id: str, contract: str, layout: UnrollLayout) -> list[Callable[[Random], list[bytes]]]:
    """Messages that an actor of this run may send to an inference service; most contents do not fit the header or the run."""
    acting = ActingLayout(layout)

    def act(random: Random) -> list[bytes]:
        run = random.choice([run_id, run_id, run_id, OTHER_RUN])
        count, has_state, number = random.randint(1, 8), random.random() < 0.5, 1 + random.getrandbits(20)
        frames = acting_request(acting, run, contract, count, has_state=has_state, number=number)
        match random.randrange(4):
            case 0:  # a header for another payload
                wrong = {"num_environments": random.choice([1, count, count + 1, 65_535]), "has_state": random.random() < 0.5}
                frames[0] = acting_request(acting, run, contract, count, number=number, **wrong)[0]
            case 1:
                return [*frames, random.choice(frames)]
            case 2:
                return frames[:-1]
            case _:
                where = random.randrange(1, len(frames))
                frames[where] = damaged(frames[where], random)
        return frames

    return [act, act, *recorded(INFERENCE, run_id, contract)]


def acting_request(
    layout: ActingLayout, run_id: str, contract: str, count: int, *, has_state: bool, number: int, **changes: int
) -> list[bytes]:
    """Return a request to act in environments of which everything is zero; ``changes`` are of the header."""
    fields = layout.state_fields if has_state else layout.row_fields
    shape = layout.planes_shape(has_state=has_state)
    states = {"has_state": has_state, "wants_state": number % 2 == 0}
    who = {"run": run_id, "agent": 0, "contract": contract, "id": number, "num_environments": count, **states}
    packed = pack_fields(fields, {field.name: np.zeros((count, *field.shape), field.dtype) for field in fields})
    return [header(Act(**who | changes)), packed, *([] if shape is None else [bytes(count * math.prod(shape))])]
