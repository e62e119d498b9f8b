"""An actor's links to some of the learner's shards: each message goes to a shard that has granted credit.

Nothing needs to be rebalanced. Shards learn in lockstep, so the queue of a shard with more unrolls than the others fills up, and the shard
stops granting credit; unrolls then go to the others. Each link is an unroll stream of its own, with its own incarnation.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

from herd.contract.unroll import LINK_BITS
from herd.protocols.unrolls.client import LONGEST_WAIT_SECONDS, UnrollClient
from herd.transport.context import Poller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.contract.unroll import Arrays
    from herd.protocols.unrolls.messages import EpisodeReport

ASK_OTHERS_SECONDS = 0.05
"""Time without credit from the shard whose turn it is before the others are asked too: half an update of a fast learner."""


class Sent(NamedTuple):
    """Identifies the message that a buffer was sent in."""

    link: int
    sequence: int


def shards_of_agent(endpoints: Sequence[str], num_agents: int, agent: int) -> Sequence[str]:
    """Return this agent's part of ``endpoints``: all agents have the same number of shards, and those of agent 0 come first.

    Raises:
        ValueError: the number of endpoints is not a multiple of ``num_agents``.

    """
    count, rest = divmod(len(endpoints), num_agents)
    if rest or not count:
        raise ValueError(f"--learner has {len(endpoints)} addresses, which is not a multiple of agents, {num_agents}")
    return endpoints[agent * count : (agent + 1) * count]


def choose_shards(endpoints: Sequence[str], num_links: int, actor_index: int) -> list[str]:
    """Return ``num_links`` neighbours on the ring of shards. The start depends on the actor, so that all shards get equally many links."""
    count = min(num_links, len(endpoints))
    return [endpoints[(actor_index + offset) % len(endpoints)] for offset in range(count)]


def link_incarnations(num_links: int) -> list[int]:
    """Draw one incarnation per link. All bits except the lowest ``LINK_BITS`` are equal, which identifies the links of one process."""
    process = secrets.randbits(63 - LINK_BITS) << LINK_BITS
    return [process | link for link in range(num_links)]


class UnrollLinks:
    """The links of one actor, used like a single `UnrollClient` by the thread that steps the environments."""

    def __init__(self, clients: Sequence[UnrollClient], clock: Callable[[], float] = time.monotonic) -> None:
        """``clients``: at least one, each connected to a different shard."""
        self._clients = list(clients)
        self._clock = clock
        self._turn = 0
        self._poller = Poller(*(client.socket for client in self._clients))
        self.blocked_seconds = 0.0
        """Time spent in ``wait_for_credit``."""

    @property
    def incarnation(self) -> int:
        """Incarnation of the first link."""
        return self._clients[0].incarnation

    @property
    def refused(self) -> str | None:
        """Reason for which a shard refuses this actor; None if none does."""
        return next((client.refused for client in self._clients if client.refused is not None), None)

    @property
    def run_is_over(self) -> bool:
        """Whether a shard has sent a goodbye: the run is over."""
        return any(client.run_is_over for client in self._clients)

    @property
    def num_unacked(self) -> int:
        """Number of messages whose buffers must not change."""
        return sum(client.num_unacked for client in self._clients)

    @property
    def num_unrolls_resent(self) -> int:
        """Number of unrolls sent again after a reconnection."""
        return sum(client.num_unrolls_resent for client in self._clients)

    @property
    def num_rejected(self) -> int:
        """Number of messages that shards dropped permanently."""
        return sum(client.num_rejected for client in self._clients)

    @property
    def bytes_in(self) -> int:
        """Bytes received."""
        return sum(client.socket.bytes_in for client in self._clients)

    @property
    def bytes_out(self) -> int:
        """Bytes sent, including repeated messages."""
        return sum(client.socket.bytes_out for client in self._clients)

    def is_acked(self, sent: Sent) -> bool:
        """Return whether the buffers of this message are free."""
        return sent.sequence <= self._clients[sent.link].acked_sequence

    def request_credit(self, num_unrolls: int) -> None:
        """Request credit for a message from one shard, without waiting, unless a link has it already."""
        if self._ready(num_unrolls) is None:
            self._clients[self._turn].request_credit(num_unrolls)

    def wait_for_credit(self, num_unrolls: int, timeout_seconds: float) -> bool:
        """Wait at most ``timeout_seconds`` for credit on any link; the time is added to ``blocked_seconds``."""
        if self._ready(num_unrolls) is not None:
            return True
        if len(self._clients) == 1:
            got_it = self._clients[0].wait_for_credit(num_unrolls, timeout_seconds)
            self.blocked_seconds = self._clients[0].blocked_seconds
            return got_it
        start = self._clock()
        self._clients[self._turn].request_credit(num_unrolls)
        while (waited := self._clock() - start) < timeout_seconds and self._ready(num_unrolls) is None:
            asks_all = waited >= ASK_OTHERS_SECONDS
            if asks_all:
                for client in self._clients:
                    client.request_credit(num_unrolls)
            limit = LONGEST_WAIT_SECONDS if asks_all else ASK_OTHERS_SECONDS - waited
            self._poller.poll(min(limit, timeout_seconds - waited))
            self.poll()
        self.blocked_seconds += self._clock() - start
        return self._ready(num_unrolls) is not None

    def send_unrolls(self, arrays: Arrays, *, num_frames: int, episodes: Sequence[EpisodeReport] = ()) -> Sent:
        """Send one message on a link with credit; see ``UnrollClient.send_unrolls``.

        Raises:
            RuntimeError: no link has credit (see ``wait_for_credit``).
        """
        link = self._ready(len(next(iter(arrays.values()))))
        if link is None:
            raise RuntimeError("no credit; call wait_for_credit first")
        sequence = self._clients[link].send_unrolls(arrays, num_frames=num_frames, episodes=episodes)
        self._turn = (link + 1) % len(self._clients)
        return Sent(link, sequence)

    def poll(self) -> None:
        """Handle answers and send what is due on every link."""
        for client in self._clients:
            client.poll()

    def drain(self, timeout_seconds: float) -> bool:
        """Wait at most ``timeout_seconds`` until everything is acknowledged; return whether it is."""
        deadline = self._clock() + timeout_seconds
        for client in self._clients:
            client.drain(max(0.0, deadline - self._clock()))
        return self.num_unacked == 0

    def close(self) -> None:
        """Send a goodbye on every link and close at once."""
        for client in self._clients:
            client.close()

    def _ready(self, num_unrolls: int) -> int | None:
        """Return the first link with credit, beginning with the one whose turn it is; None if there is none."""
        count = len(self._clients)
        order = ((self._turn + offset) % count for offset in range(count))
        return next((link for link in order if self._clients[link].has_credit(num_unrolls)), None)
