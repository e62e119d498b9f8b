"""Hostile clients that a server admits: they know run and contract, and follow the conversation, but what they send is wrong."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import lz4.block
import numpy as np
import zmq
import zstandard

from benchmarks.fuzz.hostile_messages import ANSWERED, SWEPT, a_piece, acting_request, header, insert_of
from herd.protocols.inference.messages import INFERENCE, Acted, StateWanted
from herd.protocols.inference.rows import ActingLayout
from herd.protocols.population.messages import POPULATION, Applied, Declined, MemberAnswer, MemberReport, OwnSetting
from herd.protocols.replay.messages import REPLAY, Inserted, Sampled, SampleEpisode, SamplePart
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.messages import (
    UNROLLS,
    Ack,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    Hello,
    HelloRequired,
    Rejected,
    Unrolls,
    Welcome,
    actor_identity,
)
from herd.rpc.codec import Conversation, encode
from herd.rpc.envelope import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from benchmarks.fuzz.hostile_messages import Outcome
    from benchmarks.fuzz.processes import CatchRun
    from herd.rpc.envelope import Message

ANSWER_SECONDS = 60.0
"""Timeout for credit: the learner must first train on what is queued before."""


class Insider:
    """A client that a server admits. It follows the answers: counts are exact, and right requests are answered."""

    conversation: Conversation

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], port: int, name: bytes, random: Random) -> None:
        self.expected: Counter[Outcome] = Counter()
        self.by_kind: Counter[str] = Counter()
        self._random = random
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, name)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://127.0.0.1:{port}")

    def attack(self) -> None:
        """Send one round of messages."""
        raise NotImplementedError

    def leave(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _ask(self, kind: str, frames: list[bytes], answer: type[Message] | None, outcome: Outcome | None = None) -> Message | None:
        """Send a message and wait for its answer, if it gets one; ``outcome``: what the server counts."""
        self.by_kind[kind] += 1
        self.expected[outcome or ANSWERED] += 1
        self._socket.send_multipart(frames)
        return None if answer is None else self._hear(answer)

    def _hear(self, kind: type[Message]) -> Message:
        """Wait for an answer of this kind; grants may arrive at any time."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if not self._socket.poll(1000, zmq.POLLIN):
                continue
            answer = self.conversation.decode(self._socket.recv_multipart()[0])
            self._noticed(answer)
            if isinstance(answer, kind):
                return answer
            if answer.type != "credit":
                raise RuntimeError(f"{answer} where {kind.__name__} was expected")
        raise RuntimeError(f"no {kind.__name__} within {ANSWER_SECONDS:g} s")

    def _noticed(self, answer: Message) -> None: ...


class ReplayInsider(Insider):
    """A writer of replay: its stream has wrong, repeated and early messages, and between them whole games, which are stored."""

    conversation = REPLAY

    def __init__(self, run: CatchRun, *connection: Any) -> None:
        super().__init__(*connection)
        self._names = (run.run_id, run.contract)
        self._pieces = PieceLayout(run.layout)
        self._client = str(self._random.getrandbits(63))
        self._number = 0

    def attack(self) -> None:
        self._number += 1
        unusable: Outcome = ("malformed", "array")
        self._insert("too few records", unusable, num_records=2)
        self._insert("repeated", None)
        self._insert("early", None, id=self._number + self._random.randrange(2, 2**40))
        self._number += 1
        self._insert("a game", None)
        who = {"id": 1, "run": self._names[0], "agent": 0, "contract": self._names[1]}
        drawn = self._ask("drawn", [header(SampleEpisode(**who))], Sampled)
        assert drawn is not None
        if getattr(drawn, "num_parts", 0) != 1:
            raise RuntimeError(f"{drawn} after a game was stored")
        nowhere = SamplePart(**who, episode=(0, 1, 2, 3, 4), first_step=2**63 - 1)
        self._ask("a part of no game", [header(nowhere)], Sampled)

    def _insert(self, kind: str, outcome: Outcome | None, **changes: int) -> None:
        episode = a_piece(self._pieces, self._random, begins=True)
        whole = episode._replace(num_steps=episode.pieces[0].num_steps)
        numbers = {"id": self._number, "oldest": self._number, **changes}
        answer = self._ask(kind, insert_of(*self._names, [whole], self._client, **numbers), Inserted, outcome)
        if getattr(answer, "sequence", 0) != self._number:
            raise RuntimeError(f"{answer} where {self._number} messages were inserted")


class PopulationInsider(Insider):
    """A member whose reports are in order, or name settings and orders that are not its own."""

    conversation = POPULATION

    def __init__(self, run: CatchRun, *connection: Any) -> None:
        super().__init__(*connection)
        self._names = {"run": run.run_id, "contract": run.contract}

    def attack(self) -> None:
        refused: Outcome = ("refused", "other")
        impossible = Applied(number=2**63 - 1, env_frames=0, learner_updates=0)
        unknown = Declined(number=self._random.getrandbits(62) + 1, reason="no such order")
        self._report("a report", MemberAnswer)
        self._report("of another sweep", Refused, refused, settings=(OwnSetting(key="loss.discount", value=0.5),))
        self._report("of no settings", Refused, refused, settings=())
        self._report("an impossible order applied", Refused, refused, applied=impossible)
        self._report("an unknown order declined", MemberAnswer, declined=unknown)

    def _report(self, kind: str, answer: type[Message], outcome: Outcome | None = None, **changes: object) -> None:
        counts = {"env_frames": 0, "learner_updates": 0, "num_episodes": 0, "fitness": None, "checkpoint": None}
        own = {"settings": (OwnSetting(key=SWEPT, value=0.01),), "applied": None, "declined": None}
        agent = self._random.randrange(2)
        self._ask(kind, [header(MemberReport(id=1, agent=agent, **self._names, **counts, **own | changes))], answer, outcome)


class InferenceInsider(Insider):
    """An actor with a session: its rows are repeated, late, early, of other environments and damaged, and between them in order."""

    conversation = INFERENCE

    def __init__(self, run: CatchRun, *connection: Any) -> None:
        super().__init__(*connection)
        self._names = (run.run_id, run.contract)
        self._layout = ActingLayout(run.layout)
        self._number = 0

    def attack(self) -> None:
        self._act("a row with its state", Acted, 1, has_state=True)
        self._act("repeated", Acted, 0, has_state=True)
        self._act("the next row", Acted, 1)
        self._act("late", None, -1)
        self._act("a row too early", StateWanted, self._random.randrange(2, 2**40))
        self._act("other environments", StateWanted, 1, count=1)
        frames = self._frames(1, 2, has_state=False)
        self._ask("without rows", frames[:1], None, ("malformed", "array"))

    def _frames(self, ahead: int, count: int, *, has_state: bool) -> list[bytes]:
        return acting_request(self._layout, *self._names, count, has_state=has_state, number=self._number + ahead)

    def _act(self, kind: str, answer: type[Message] | None, ahead: int, *, count: int = 2, has_state: bool = False) -> None:
        self._ask(kind, self._frames(ahead, count, has_state=has_state), answer)
        self._number += ahead if answer is Acted else 0


class UnrollInsider(Insider):
    """A fake actor: it knows run and contract, has a session and credit, and sends invalid unrolls."""

    conversation = UNROLLS

    def __init__(self, run: CatchRun, context: zmq.Context[zmq.Socket[bytes]], port: int, index: int, random: Random) -> None:
        self.key = (index, random.getrandbits(62))
        super().__init__(context, port, actor_identity(*self.key).encode(), random)
        self.generated = 0
        """Env frames that the ledger must contain as dropped{malformed}."""
        self._layout = layout = run.layout
        self._frames_per_unroll = layout.unroll_length * run.action_repeat
        self._sequence = 0
        self._used = 0
        self._granted = 0
        self._kinds: dict[str, Callable[[], list[bytes]]] = {
            "array of an absurd shape": self._absurd_shape,
            "array mistyped": self._mistyped,
            "array truncated": self._truncated,
            "array missing": self._missing,
            "non-finite reward": lambda: self._with("rewards", self._random.choice([np.nan, np.inf, -np.inf])),
            "non-finite parameters": lambda: self._with("behaviour_parameters", np.nan),
            "action out of range": lambda: self._with("actions", self._random.choice([-1, 2**31 - 1])),
            "no boolean": self._no_boolean,
            "decompression bomb": self._bomb,
            "frames that the unroll does not hold": lambda: self._message(num_frames=self._frames_per_unroll - 1),
            "a return beyond all games": lambda: self._message(episodes=(self._episode(episode_return=1e300),)),
            "more games than steps": lambda: self._message(episodes=(self._episode(),) * (layout.unroll_length + 1)),
            "a game of another task": lambda: self._message(episodes=(self._episode(task_id=2**40),)),
        }

        hello = Hello(
            id=1,
            run=run.run_id,
            agent=0,
            contract=run.contract,
            actor_index=self.key[0],
            incarnation=self.key[1],
            max_unrolls=1,
            oldest_sequence=1,
        )
        self._send(hello)
        self._hear(Welcome)

    def attack(self) -> None:
        """Send one round: unusable unrolls within credit, repeated ones, ones out of sequence or without credit, and ones with false
        numbers."""
        kind = self._random.choice(sorted(self._kinds))
        self._get_credit()
        self._sequence += 1
        frames = self._kinds[kind]()
        num_frames = _header(frames).num_frames
        self._count(kind, ("rejected", "malformed"))
        self.generated += num_frames
        self._socket.send_multipart(frames)
        self._used += 1
        self._hear(Rejected)
        self._count("without credit", ("refused", "credit"))
        self._sequence += 1
        self._socket.send_multipart(self._message())
        self._sequence -= 1
        self._hear(HelloRequired)
        self._get_credit()
        self._count("replayed", ("refused", "duplicate"))
        self._socket.send_multipart(frames)
        self._used += 1
        self._hear(Ack)
        self._get_credit()
        for ahead in (2, self._random.randrange(3, 2**40)):
            self._count("out of sequence", ("refused", "sequence"))
            self._sequence += ahead
            self._socket.send_multipart(self._message())
            self._sequence -= ahead
            self._hear(HelloRequired)
        self._sequence += 1
        for generated, num_frames in ((2**63 - 1, 1), (self.generated - 1, 0), (2**62, 2**62)):
            self._count("frames that nobody played", ("malformed", "unexpected"))
            self._socket.send_multipart(self._message(generated_frames=max(0, generated), num_frames=num_frames))
        self._sequence -= 1

    def leave(self) -> None:
        """Send a goodbye, so that the credit is free at once."""
        self._send(Goodbye())
        self._socket.close(linger=1000)

    def _get_credit(self) -> None:
        while self._granted <= self._used:
            self._send(CreditRequest(wanted_unrolls=self._used + 1))
            self._hear(Credit)

    def _count(self, kind: str, outcome: Outcome) -> None:
        self.by_kind[kind] += 1
        self.expected[outcome] += 1

    def _send(self, message: Message) -> None:
        self._socket.send_multipart(encode(message))

    def _noticed(self, answer: Message) -> None:
        self._granted = getattr(answer, "granted_unrolls", self._granted)

    def _message(self, arrays: dict[str, np.ndarray] | None = None, **changes: object) -> list[bytes]:
        if arrays is None:
            arrays = self._layout.allocate(1)
            arrays["row_valid"][...] = True
        fields: dict[str, Any] = {"sequence": self._sequence, "num_frames": self._frames_per_unroll, "num_unrolls": 1, **changes}
        fields.setdefault("generated_frames", self.generated + fields["num_frames"])
        return [bytes(frame) for frame in [*encode(Unrolls(**fields)), *pack_arrays(arrays)]]

    def _valid(self) -> dict[str, np.ndarray]:
        arrays = self._layout.allocate(1)
        arrays["row_valid"][...] = True
        return arrays

    def _with(self, name: str, value: float) -> list[bytes]:
        arrays = self._valid()
        arrays[name].reshape(-1)[self._random.randrange(arrays[name].size)] = value
        return self._message(arrays)

    def _absurd_shape(self) -> list[bytes]:
        arrays = self._valid()
        name = self._random.choice(sorted(arrays))
        # A frame is bytes of a layout that both sides know, so what is wrong about it is its length.
        shapes = [shape for shape in ((0,), (1,) * 8, (1, 10_000), (2**16, 1)) if math.prod(shape) != arrays[name].size]
        arrays[name] = np.zeros(self._random.choice(shapes), arrays[name].dtype)
        return self._message(arrays)

    def _mistyped(self) -> list[bytes]:
        arrays = self._valid()
        name = self._random.choice(sorted(arrays))
        codes = [code for code in ("<i2", "<i4", "<i8", "<f4") if np.dtype(code).itemsize != arrays[name].dtype.itemsize]
        arrays[name] = arrays[name].astype(self._random.choice(codes))
        return self._message(arrays)

    def _truncated(self) -> list[bytes]:
        frames = self._message()
        position = self._random.randrange(1, len(frames))
        frames[position] = frames[position][:-1]
        return frames

    def _missing(self) -> list[bytes]:
        frames = self._message()
        del frames[self._random.randrange(1, len(frames))]
        return frames

    def _no_boolean(self) -> list[bytes]:
        arrays = self._valid()
        arrays["terminated"].view(np.uint8)[0, 0] = self._random.randrange(2, 256)
        return self._message(arrays)

    def _bomb(self) -> list[bytes]:
        """Return 64 MiB of zeros, compressed, for an array that is announced with 1 kB."""
        frames = self._message()
        header = _header(frames)
        position = [field.name for field in self._layout.fields].index("frames")
        how = self._random.choice(["lz4", "zstd"])
        zeros = bytes(64 << 20)
        frames[1 + position] = (
            lz4.block.compress(zeros, store_size=False) if how == "lz4" else zstandard.ZstdCompressor(level=1).compress(zeros)
        )
        frames[0] = bytes(encode(header.model_copy(update={"compression": how}))[0])
        return frames

    def _episode(self, **changes: object) -> EpisodeReport:
        fields = {"task_id": 0, "environment_slot": 0, "episode_id": 0, "episode_return": 1.0, "agent_steps": 1}
        return EpisodeReport(**{**fields, **changes})


def _header(frames: list[bytes]) -> Unrolls:
    header = UNROLLS.decode(frames[0])
    assert isinstance(header, Unrolls)
    return header


INSIDERS = {"replay": ReplayInsider, "population": PopulationInsider, "inference": InferenceInsider}
"""By server. Those of the learner have a number of their own in its ledger."""
