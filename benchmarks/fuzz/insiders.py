"""Hostile clients that the learner admits: they know run and contract, have a session and credit, and send invalid unrolls."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import lz4.block
import numpy as np
import zmq
import zstandard

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
from herd.rpc.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from benchmarks.fuzz.hostile_messages import Outcome
    from herd.contract.unroll import UnrollLayout
    from herd.rpc.envelope import Message

ANSWER_SECONDS = 60.0
"""Timeout for credit: the learner must first train on what is queued before."""


class Insider:
    """A fake actor. It follows the learner's answers, so that the expected counts are exact."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], port: int, index: int, random: Random, layout: UnrollLayout, action_repeat: int
    ) -> None:
        self.key = (index, random.getrandbits(62))
        self.expected: Counter[Outcome] = Counter()
        self.by_kind: Counter[str] = Counter()
        self.generated = 0
        """Env frames that the ledger must contain as dropped{malformed}."""
        self._random = random
        self._layout = layout
        self._frames_per_unroll = layout.unroll_length * action_repeat
        self._sequence = 0
        self._used = 0
        self._granted = 0
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, actor_identity(*self.key).encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://127.0.0.1:{port}")
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

    def join(self, run_id: str, contract: str) -> None:
        hello = Hello(
            id=1,
            run=run_id,
            agent=0,
            contract=contract,
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

    def _hear(self, kind: type[Message]) -> None:
        """Wait for an answer of this kind; grants may arrive at any time."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if not self._socket.poll(1000, zmq.POLLIN):
                continue
            answer = UNROLLS.decode(self._socket.recv_multipart()[0])
            self._granted = getattr(answer, "granted_unrolls", self._granted)
            if isinstance(answer, kind):
                return
            if answer.type != "credit":
                raise RuntimeError(f"{answer} where {kind.__name__} was expected")
        raise RuntimeError(f"no {kind.__name__} within {ANSWER_SECONDS:g} s")

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
