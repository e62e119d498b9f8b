"""Decides what to do with each message of the unroll stream (docs/messaging.md, "The unroll stream"). No sockets, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.wire.codec import MalformedMessage, decode_header, read_arrays
from herd.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    Hello,
    HelloRequired,
    Refused,
    Rejected,
    Unrolls,
    Welcome,
)
from services.learner.ledger import MALFORMED, ActorKey, Ledger, Verdict
from services.learner.queue import Block, QueuedUnroll, UnrollQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.wire.codec import Frame
    from herd.wire.credit import CreditPool, Grant
    from herd.wire.layout import UnrollLayout
    from herd.wire.messages import Message


class Reply(NamedTuple):
    """Send ``message`` to ``peer``."""

    peer: bytes
    message: Message


class Ingest:
    """Sessions, sequence and credit of all actors; unrolls that pass go into the queue."""

    def __init__(
        self,
        *,
        run_id: str,
        contract: str,
        layout: UnrollLayout,
        action_repeat: int,
        ledger: Ledger,
        queue: UnrollQueue,
        credit: CreditPool,
        on_episode: Callable[[EpisodeReport], None],
        on_unrolls: Callable[[int, str | None], None],
    ) -> None:
        """``on_episode`` gets each finished game once; ``on_unrolls`` the number of each message's unrolls and why they were dropped."""
        self._run_id = run_id
        self._contract = contract
        self._layout = layout
        self._action_repeat = action_repeat
        self._ledger = ledger
        self._queue = queue
        self._credit = credit
        self._on_episode = on_episode
        self._on_unrolls = on_unrolls
        self._actors: dict[bytes, ActorKey] = {}
        self._peers: dict[int, bytes] = {}

    def on_message(self, peer: bytes, frames: Sequence[Frame], now: float) -> list[Reply]:
        """Answers to one message; ``now`` in monotonic seconds.

        Raises:
            MalformedMessage: it breaks the protocol; nothing changed.
        """
        message = decode_header(frames[0])
        if isinstance(message, Hello):
            return self._on_hello(peer, message, now)
        if not isinstance(message, CreditRequest | Goodbye | Unrolls):
            raise MalformedMessage(f"{message.type} is not for a learner", "unexpected")
        actor = self._actors.get(peer)
        if actor is None or not self._credit.knows(peer):
            return [Reply(peer, HelloRequired(reason="no session: the learner restarted, or the actor was silent too long"))]
        if isinstance(message, CreditRequest):
            grants = self._credit.on_credit_request(peer, message.wanted_unrolls, now)
            # The requester is answered in any case: that is how it knows that the learner lives.
            return [Reply(peer, Credit(granted_unrolls=self._credit.granted(peer))), *self._announce(grants, skip=peer)]
        if isinstance(message, Goodbye):
            self._forget(peer)
            return self._announce(self._credit.on_goodbye(peer))
        return self._on_unrolls_message(peer, actor, message, frames[1:], now)

    def on_consumed(self, num_unrolls: int) -> list[Reply]:
        """Unrolls left the queue: their places are granted again."""
        return self._announce(self._credit.on_consumed(num_unrolls))

    def expire(self, now: float) -> list[Reply]:
        """Take back the credit of silent actors."""
        replies = self._announce(self._credit.expire(now))
        for peer in [peer for peer in self._actors if not self._credit.knows(peer)]:
            self._forget(peer)
        return replies

    def _on_hello(self, peer: bytes, hello: Hello, now: float) -> list[Reply]:
        refusal = self._refusal(hello)
        if refusal is not None:
            return [Reply(peer, Refused(request_id=hello.request_id, reason=refusal))]
        actor = (hello.actor_index, hello.incarnation)
        # A restarted actor takes its index over: what its dead predecessor was granted goes back at once.
        predecessor = self._peers.get(hello.actor_index)
        replies: list[Reply] = []
        if predecessor is not None and predecessor != peer:
            self._forget(predecessor)
            replies += self._announce(self._credit.on_goodbye(predecessor))
        replies += self._announce(self._credit.on_hello(peer, hello.max_unrolls, now))
        self._actors[peer] = actor
        self._peers[hello.actor_index] = peer
        accepted = self._ledger.on_hello(actor, hello.oldest_sequence)
        welcome = Welcome(request_id=hello.request_id, accepted_sequence=accepted, granted_unrolls=self._credit.granted(peer))
        return [Reply(peer, welcome), *replies]

    def _refusal(self, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL_VERSION:
            return f"protocol version {hello.protocol}, this learner speaks {PROTOCOL_VERSION}: run the same release everywhere"
        if hello.run_id != self._run_id:
            # Shortened: escaped, a foreign id of 128 characters would outgrow what a reason may hold.
            return f"run {hello.run_id[:64]!r}, this learner trains {self._run_id[:64]!r}: check actor.learner, or name both runs alike"
        if hello.contract != self._contract:
            return (
                f"contract {hello.contract[:12]} differs from this learner's {self._contract[:12]}: "
                "env, network, algorithm.unroll_length and algorithm.reward_shaping must be equal"
            )
        if hello.max_unrolls > self._credit.capacity:
            return f"messages of {hello.max_unrolls} unrolls never fit the queue of {self._credit.capacity}: raise learner.queue_batches"
        return None

    def _on_unrolls_message(self, peer: bytes, actor: ActorKey, message: Unrolls, payload: Sequence[Frame], now: float) -> list[Reply]:
        sequence, generated, num_frames = message.sequence, message.generated_frames, message.num_frames
        verdict = self._ledger.judge(actor, sequence=sequence, generated=generated, num_frames=num_frames)
        if verdict is Verdict.OUT_OF_SEQUENCE:
            return [Reply(peer, HelloRequired(reason=f"message {message.sequence} is out of sequence"))]
        if verdict is Verdict.INCONSISTENT:
            raise MalformedMessage(f"generated_frames {message.generated_frames} went back", "unexpected")
        if not self._credit.on_message_received(peer, message.num_unrolls, now):
            return [Reply(peer, HelloRequired(reason=f"no credit for {message.num_unrolls} unrolls"))]
        if verdict is Verdict.DUPLICATE:
            grants = self._credit.on_consumed(message.num_unrolls)
            return [self._ack(peer, message.sequence), *self._announce(grants)]

        block = self._queue.new_block(message.num_unrolls)
        try:
            read_arrays(message, payload, self._layout, block.arrays)
            unrolls = self._unrolls(block, actor, message)
        except MalformedMessage as error:
            self._queue.give_back(block)
            self._ledger.receive(actor, sequence=sequence, generated=generated, num_frames=num_frames, dropped_as=MALFORMED)
            self._on_unrolls(message.num_unrolls, MALFORMED)
            grants = self._credit.on_consumed(message.num_unrolls)
            rejection = Rejected(sequence=message.sequence, reason=error.reason, granted_unrolls=self._credit.granted(peer))
            return [Reply(peer, rejection), *self._announce(grants)]
        # Booked before it is queued: the training thread may consume it at once.
        self._ledger.receive(actor, sequence=sequence, generated=generated, num_frames=num_frames)
        self._queue.put(unrolls)
        self._on_unrolls(message.num_unrolls, None)
        for episode in message.episodes:
            self._on_episode(episode)
        return [self._ack(peer, message.sequence)]

    def _unrolls(self, block: Block, actor: ActorKey, message: Unrolls) -> list[QueuedUnroll]:
        num_frames = block.arrays["row_valid"].sum(axis=1, dtype=np.int64) * self._action_repeat
        if int(num_frames.sum()) != message.num_frames:
            raise MalformedMessage(f"num_frames {message.num_frames}, but its valid rows hold {int(num_frames.sum())}", "array")
        num_tasks = self._layout.num_tasks
        if num_tasks is not None and any(episode.task_id >= num_tasks for episode in message.episodes):
            raise MalformedMessage("an episode of an unknown task", "unexpected")
        versions = block.arrays["policy_version"][:, 0].tolist()
        task_ids = block.arrays["task_id"].tolist()
        return [
            QueuedUnroll(block, row, actor, (versions[row][0], versions[row][1]), task_ids[row], int(num_frames[row]))
            for row in range(block.num_unrolls)
        ]

    def _ack(self, peer: bytes, sequence: int) -> Reply:
        return Reply(peer, Ack(sequence=sequence, granted_unrolls=self._credit.granted(peer)))

    def _announce(self, grants: list[Grant], skip: bytes | None = None) -> list[Reply]:
        return [Reply(grant.peer, Credit(granted_unrolls=grant.granted_unrolls)) for grant in grants if grant.peer != skip]

    def _forget(self, peer: bytes) -> None:
        actor = self._actors.pop(peer, None)
        if actor is not None and self._peers.get(actor[0]) == peer:
            del self._peers[actor[0]]
