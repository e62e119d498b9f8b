"""What every server checks before its handler sees a message, and what the handler returns. No I/O."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from herd.rpc.codec import MalformedMessage, OtherProtocol, printable
from herd.rpc.envelope import ROLES, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.rpc.codec import Conversation
    from herd.rpc.envelope import Message, Role
    from herd.transport import Frame, Peer

R = TypeVar("R")
_UNKNOWN = (0, None, 0)
"""Number of the newest request, its reply and its entries, of a client that is not remembered."""
Novelty = Literal["new", "repeated", "late", "early"]
"""``late``: older than a request that was answered. ``early``: an earlier request is missing and will be repeated."""


class Received(NamedTuple):
    """A request that has passed the checks."""

    peer: Peer
    message: Message
    payloads: Sequence[memoryview] = ()


@dataclass(slots=True)
class Reply:
    """What a server makes of one request."""

    message: Message | None = None
    """The answer; None if there is none, or none yet."""
    payloads: Sequence[Frame] = ()
    malformed: MalformedMessage | None = None
    """The error of a message that is answered nevertheless, because its sender would otherwise repeat it forever."""
    label: str = "other"
    """For a ``Refused``: the label of the refused-messages counter."""


class RequestRefused(Exception):  # noqa: N818  named after what happened
    """The server does not serve this client; ``label`` is for the metrics, ``reason`` for the client and the log."""

    def __init__(self, label: str, reason: str, id: int) -> None:  # noqa: A002  the field's name
        super().__init__(reason)
        self.label, self.reason, self.id = label, reason, id

    @property
    def reply(self) -> Reply:
        """The answer to the client."""
        return Reply(Refused(id=self.id, reason=self.reason), label=self.label)


@dataclass(frozen=True, slots=True)
class ServedRun:
    """The run that a server serves; each request names the run, and most name the agent and the contract."""

    address: str
    """The setting that holds the server's address."""
    run: str
    contract: str
    agents: range
    """Numbers of the agents that it serves."""

    def check(self, server: str, message: Message) -> None:
        """Check that a client belongs to this run and has the same contract.

        Raises:
            RequestRefused: it does not; the reason says what to compare.

        """
        if message.run is None:  # within a session
            return
        theirs = printable(message.run, 64)  # foreign text goes into answers and logs
        if message.run != self.run:
            raise RequestRefused(
                "run", f"this {server} belongs to run {self.run}, not {theirs}: check {self.address} of run {theirs}", message.id
            )
        if "contract" not in message.names:
            return
        if message.agent not in self.agents:
            served = f"agents {self.agents[0]} to {self.agents[-1]}" if len(self.agents) > 1 else f"agent {self.agents[0]}"
            reason = (
                f"this {server} serves {served}, not {message.agent}: start all processes of run {theirs} with the same agents setting, "
                f"and check the order of the addresses in {self.address}"
            )
            raise RequestRefused("agent", reason, message.id)
        if message.contract != self.contract:
            reason = (
                f"run {theirs}: contract {printable(message.contract or '', 12)} does not match this {server}'s {self.contract[:12]}: "
                "start all processes with the same env, network, algorithm.unroll_length, algorithm.burn_in and "
                "algorithm.reward_shaping settings"
            )
            raise RequestRefused("contract", reason, message.id)


@lru_cache(maxsize=1024)
def role_of(holder: str | None) -> Role | None:
    """Return the role in the name of a client's key (``client-actor-7``); None if it has none, and its holder may send everything."""
    first = (holder or "").removeprefix("client-").partition("-")[0]
    if first == "evaluator":  # the service has the role of a viewer
        return "viewer"
    return next((role for role in ROLES if role == first), None)


@lru_cache(maxsize=1024)
def agent_of(holder: str | None) -> int | None:
    """Return the agent in the name of a client's key (``client-learner-agent-1``); None if its holder may speak for every agent."""
    found = re.search(r"-agent-([0-9]{1,9})\Z", holder or "")
    return int(found[1]) if found is not None else None


def read(conversation: Conversation, run: ServedRun, peer: Peer, frames: Sequence[Frame]) -> Message:
    """Return the request in ``frames``, if its sender may send it and belongs to the run.

    Raises:
        RequestRefused: another protocol version, run, agent or contract.
        MalformedMessage: any other error; the message is dropped.

    """
    try:
        message = conversation.decode(frames[0])
    except OtherProtocol as error:
        raise RequestRefused("protocol", error.reason, error.id) from error
    if not message.senders:
        raise MalformedMessage(f"{message.type} is not a request to a {conversation.server}", "unexpected")
    role = role_of(peer.holder)
    if role is not None and not message.may_come_from(role):
        raise MalformedMessage(f"the key of a {role} may not send {message.type}", "unexpected")
    agent = agent_of(peer.holder)
    if agent is not None and "contract" in message.names and message.agent != agent:
        raise MalformedMessage(f"the key of agent {agent} may not send {message.type} for agent {message.agent}", "unexpected")
    if len(frames) > 1 and not message.has_payload:
        raise MalformedMessage(f"{message.type} with {len(frames) - 1} payload frames", "array")
    for name in message.names:
        if not getattr(message, name):
            raise MalformedMessage(f"{message.type} without {name}")
    run.check(conversation.server, message)
    return message


class AtMostOnce(Generic[R]):
    """Remembers the newest request of each client and its reply, so that a repeated request has no second effect.

    A client numbers its requests 1, 2, ... and has one under way, or, with ``in_order``, repeats unacknowledged ones in order. Beyond
    ``max_entries`` the client that has been silent longest is forgotten, and a request that it repeats is new. The newest client stays.
    """

    def __init__(self, max_entries: int, *, in_order: bool = False, entries_of: Callable[[R | None], int] = lambda _: 1) -> None:
        """``entries_of``: how many entries a client with this reply takes. With the default, ``max_entries`` is a number of clients."""
        self._max_entries = max_entries
        self._in_order = in_order
        self._entries_of = entries_of
        self._newest: OrderedDict[str, tuple[int, R | None, int]] = OrderedDict()
        self.num_entries = 0
        """Entries of all clients."""

    def __len__(self) -> int:
        """Return the number of remembered clients."""
        return len(self._newest)

    def judge(self, client: str, id: int, oldest: int = 1) -> Novelty:  # noqa: A002  the field's name
        """Classify a request. Those before ``oldest``, which the client can no longer repeat, are taken as answered."""
        last = max(self.last(client), oldest - 1)
        if id <= last:
            return "repeated" if id == last or self._in_order else "late"
        return "early" if self._in_order and id > last + 1 else "new"

    def answered(self, client: str, id: int, reply: R | None = None) -> None:  # noqa: A002  the field's name
        """Note that a request took effect, and keep its reply in place of the previous one."""
        entries = self._entries_of(reply)
        self.num_entries += entries - self._newest.get(client, _UNKNOWN)[2]
        self._newest[client] = id, reply, entries
        self._newest.move_to_end(client)
        while self.num_entries > self._max_entries and len(self._newest) > 1:
            self.num_entries -= self._newest.popitem(last=False)[1][2]

    def last(self, client: str) -> int:
        """Return the number of the newest request that took effect; 0 for an unknown client."""
        return self._newest.get(client, _UNKNOWN)[0]

    def reply(self, client: str) -> R | None:
        """Return the reply to it; None after a restart, which preserves only numbers."""
        return self._newest.get(client, _UNKNOWN)[1]

    def all(self) -> Iterator[tuple[str, int]]:
        """Yield every client and its newest request, the client that has been silent longest first."""
        for client, (number, _, _) in self._newest.items():
            yield client, number
