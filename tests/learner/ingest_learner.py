"""A learner's `Ingest` with everything around it except sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Sized
from typing import Any

from herd_learner.intake.ingest import Ingest, Reply
from herd_learner.intake.ledger import Ledger
from herd_learner.intake.queue import UnrollQueue

from herd.contract.unroll import UnrollLayout
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import UNROLLS, CreditRequest, EpisodeReport, Hello
from herd.rpc.codec import encode
from herd.rpc.serving import ServedRun
from herd.transport import Frame, Peer
from tests.learner.small_unrolls import ACTION_REPEAT, LAYOUT

PEER, OTHER = Peer(b"actor/0/7"), Peer(b"actor/1/8")
RUN, CONTRACT = "run", "c"
CAPACITY = 8
MAX_SESSIONS = 4


class Learner:
    """Ingest, ledger, queue and credit of a learner, with a record of its reports."""

    def __init__(self, *, ledger: Ledger | None = None, layout: UnrollLayout = LAYOUT, agent: int = 0, capacity: int = CAPACITY) -> None:
        self.ledger = ledger or Ledger()
        self.queue = UnrollQueue()
        self.credit = CreditPool(capacity, expires_seconds=60.0, max_sessions=MAX_SESSIONS)
        self.episodes: list[EpisodeReport] = []
        self.reported: list[tuple[int, str | None]] = []
        self.refused: Counter[str] = Counter()
        self.ingest = Ingest(
            run=ServedRun("actor.learner", RUN, CONTRACT, range(agent, agent + 1)),
            layout=layout,
            action_repeat=ACTION_REPEAT,
            ledger=self.ledger,
            queue=self.queue,
            credit=self.credit,
            on_episode=lambda episode, _: self.episodes.append(episode),
            on_unrolls=lambda num_unrolls, reason: self.reported.append((num_unrolls, reason)),
            on_refused=lambda reason: self.refused.update([reason]),
        )

    def receive(self, frames: Sequence[Frame], peer: Peer = PEER, now: float = 0.0) -> list[Reply]:
        """Receive one message; checks that every reply can be encoded and that the accounts stay balanced."""
        replies = self.ingest.on_message(peer, list(frames), now)
        for reply in replies:
            assert UNROLLS.decode(encode(reply.message)[0]) == reply.message
        assert self.ledger.snapshot().is_balanced
        assert self.credit.granted_unused + self.credit.held <= self.credit.capacity
        return replies

    def hello(self, peer: Peer = PEER, now: float = 0.0, **changes: Any) -> list[Reply]:
        return self.receive(encode(hello_of(peer, **changes)), peer, now)

    def grant(self, wanted: int, peer: Peer = PEER, now: float = 0.0) -> list[Reply]:
        return self.receive(encode(CreditRequest(wanted_unrolls=wanted)), peer, now)

    def state(self) -> tuple[Any, ...]:
        """The state that a rejected message must not change."""
        return (
            self.ledger.snapshot(),
            len(self.queue),
            self.credit.held,
            self.credit.granted_unused,
            self.credit.num_peers,
            self.credit.num_waiting,
            len(self.episodes),
        )

    def num_entries(self) -> int:
        """Size of the largest table that messages can make grow."""
        tables: tuple[Sized, ...] = (self.ingest._sessions, self.ingest._peers, self.ingest._claimed, self.ledger._sessions)
        return max(*map(len, tables), self.credit.num_peers, self.credit.num_waiting, len(self.credit._newcomers))


def hello_of(peer: Peer = PEER, **changes: Any) -> Hello:
    """The hello of the actor with this name, with ``changes``."""
    _, index, incarnation = str(peer).split("/")
    fields = {"id": 3, "run": RUN, "agent": 0, "contract": CONTRACT, "max_unrolls": 4, "oldest_sequence": 1}
    return Hello(**{**fields, "actor_index": int(index), "incarnation": int(incarnation, 16), **changes})
