"""Decides what to do with each message of the unroll stream (R12 to R29 of docs/messaging.md). No sockets, no clock."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.contract.unroll import LARGEST_RETURN
from herd.protocols.unrolls.arrays import receive_arrays
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
from herd.protocols.unrolls.metrics import MALFORMED
from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import Refused
from herd.rpc.serving import RequestRefused, ServedRun, read
from herd.service.inbox import warn_failed
from herd.telemetry.logs import warn_limited
from herd_learner.intake.ledger import ActorKey, Ledger, Verdict, frames_by_task
from herd_learner.intake.queue import QueuedUnroll, UnrollQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.contract.unroll import Arrays, UnrollLayout
    from herd.protocols.unrolls.credit import CreditPool, Grant
    from herd.rpc.envelope import Message
    from herd.transport import Frame, Peer


TAKEOVER_SECONDS = 6.0
"""When another actor claims an actor's index, its session ends unless it sends something within this time. A live actor sends something
every 5 s. Any client that can send a hello can claim any index."""
DEPARTURE_SECONDS = 15.0
"""Time after which the session of a closed connection ends. An actor reconnects within 5 s. Otherwise its credit would be missing until it
expires."""


FAILED = "it could not be processed: see the error in the learner's log"


class Reply(NamedTuple):
    """Send ``message`` to ``peer``."""

    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True)
class _Session:
    """A session, from the actor's hello."""

    actor: ActorKey
    most_frames: int
    """Maximum env frames of one message."""


class Ingest:
    """Sessions, sequence numbers and credit of all actors; accepted unrolls go into the queue.

    Memory is bounded by ``credit``: its number of sessions, and the unrolls that it grants.
    """

    def __init__(
        self,
        *,
        run: ServedRun,
        layout: UnrollLayout,
        action_repeat: int,
        ledger: Ledger,
        queue: UnrollQueue,
        credit: CreditPool,
        on_episode: Callable[[EpisodeReport, float | None], None],
        on_unrolls: Callable[[int, str | None], None],
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start without sessions.

        ``on_episode`` gets each finished game once, with the 1/tau of its rows, or None if no row belongs to it. ``on_unrolls`` gets the
        number of unrolls of each message, and why they were dropped. ``on_refused`` gets the reason for each message that is refused but
        not malformed.
        """
        self._run = run
        self._layout = layout
        self._action_repeat = action_repeat
        self._ledger = ledger
        self._queue = queue
        self._credit = credit
        self._on_episode = on_episode
        self._on_unrolls = on_unrolls
        self._on_refused = on_refused
        self._frames_per_unroll = layout.new_steps * action_repeat
        self._sessions: dict[Peer, _Session] = {}
        self._peers: dict[int, Peer] = {}
        """The newest session under each actor index."""
        self._claimed: OrderedDict[Peer, float] = OrderedDict()
        """Sessions whose index another one has claimed, with the time of the first claim; oldest claim first."""
        self._departed: OrderedDict[Peer, float] = OrderedDict()
        """Sessions whose connection has ended, with the time; oldest first."""

    def on_message(self, peer: Peer, frames: Sequence[Frame], now: float) -> list[Reply]:
        """Return the answers to one message; ``now`` is in monotonic seconds.

        Raises:
            MalformedMessage: the message violates the protocol; nothing was changed.
        """
        try:
            message = read(UNROLLS, self._run, peer, frames)
            return self._answer(peer, message, frames[1:], now)
        except RequestRefused as error:
            refused = error
        except MalformedMessage:
            raise
        except Exception:  # an error of this program in one message must not end the service, nor leave its sender without an answer
            warn_failed(peer)
            refused = RequestRefused("other", FAILED, message.id)
        self._on_refused(refused.label)
        return [Reply(peer, Refused(id=refused.id, reason=refused.reason))]

    def _answer(self, peer: Peer, message: Message, payload: Sequence[Frame], now: float) -> list[Reply]:
        if isinstance(message, Hello):
            return self._on_hello(peer, message, now)
        session = self._sessions.get(peer)
        if session is None or not self._credit.knows(peer):
            return self._hello_required(peer, "session", "no session: the learner restarted, or the actor was silent too long")
        if isinstance(message, CreditRequest):
            if message.wanted_unrolls > self._credit.most_wanted(peer):
                return self._hello_required(peer, "credit", "unrolls of this session did not arrive")
            grants = self._credit.on_credit_request(peer, message.wanted_unrolls, now)
            # Always answer the requester: the answer shows that the learner is alive.
            return [Reply(peer, Credit(granted_unrolls=self._credit.granted(peer))), *self._announce(grants, skip=peer)]
        if isinstance(message, Goodbye):
            return self._end(peer)
        assert isinstance(message, Unrolls)
        return self._on_unrolls_message(peer, session, message, payload, now)

    def farewell(self) -> list[Reply]:
        """Return messages that tell every actor in a session that the run is over."""
        return [Reply(peer, Goodbye()) for peer in self._sessions]

    def has_session(self, peer: Peer) -> bool:
        """Return whether ``peer`` has a session."""
        return peer in self._sessions

    def on_departed(self, peer: Peer, now: float) -> None:
        """Note that the connection of ``peer`` has ended: its session ends soon, unless it reconnects."""
        if peer in self._sessions:
            self._departed.setdefault(peer, now)

    def on_consumed(self, num_unrolls: int) -> list[Reply]:
        """Note that unrolls have left the queue, and grant their places again."""
        return self._announce(self._credit.on_consumed(num_unrolls))

    def expire(self, now: float) -> list[Reply]:
        """Revoke the credit of silent actors, sooner if a successor claims the index."""
        replies = self._announce(self._credit.expire(now))
        for suspects, patience_seconds in ((self._claimed, TAKEOVER_SECONDS), (self._departed, DEPARTURE_SECONDS)):
            while suspects and now - next(iter(suspects.values())) >= patience_seconds:
                peer, since = suspects.popitem(last=False)
                if self._credit.is_silent_since(peer, since):
                    replies += self._end(peer)
        for peer in [peer for peer in self._sessions if not self._credit.knows(peer)]:
            self._forget(peer)
        return replies

    def _on_hello(self, peer: Peer, hello: Hello, now: float) -> list[Reply]:
        # No connection may act for another connection's actor; libzmq keeps identities distinct.
        if peer.name != actor_identity(hello.actor_index, hello.incarnation).encode():
            raise MalformedMessage("hello with the name of another actor", "unexpected")
        if hello.max_unrolls > self._credit.capacity:
            largest = f"messages of {hello.max_unrolls} unrolls do not fit into the queue of {self._credit.capacity}"
            raise RequestRefused("size", f"{largest}: increase learner.queue_batches", hello.id)
        if not self._ledger.can_skip_to((hello.actor_index, hello.incarnation), hello.oldest_sequence):
            reason = f"message {hello.oldest_sequence} is too far ahead of the last known one: restart this actor"
            raise RequestRefused("sequence", reason, hello.id)
        crowded_out = self._credit.place_for(peer)
        if crowded_out == peer:
            raise RequestRefused("full", "there is no free place for another actor; try again later", hello.id)
        replies = self._end(crowded_out) if crowded_out is not None else []
        self._forget(peer)
        if hello.actor_index in self._peers:
            self._claimed.setdefault(self._peers[hello.actor_index], now)
        self._peers[hello.actor_index] = peer
        replies += self._announce(self._credit.on_hello(peer, hello.max_unrolls, now))
        actor = (hello.actor_index, hello.incarnation)
        self._sessions[peer] = _Session(actor, hello.max_unrolls * self._frames_per_unroll)
        accepted = self._ledger.on_hello(actor, hello.oldest_sequence)
        welcome = Welcome(id=hello.id, accepted_sequence=accepted, granted_unrolls=self._credit.granted(peer))
        return [Reply(peer, welcome), *replies]

    def _hello_required(self, peer: Peer, label: str, reason: str) -> list[Reply]:
        self._on_refused(label)
        return [Reply(peer, HelloRequired(reason=reason))]

    def _on_unrolls_message(self, peer: Peer, session: _Session, message: Unrolls, payload: Sequence[Frame], now: float) -> list[Reply]:
        actor, sequence, generated, num_frames = session.actor, message.sequence, message.generated_frames, message.num_frames
        # Impossible numbers are never recorded in the ledger, not even as dropped.
        if num_frames > message.num_unrolls * self._frames_per_unroll:
            raise MalformedMessage(f"num_frames {num_frames} in {message.num_unrolls} unrolls", "unexpected")
        verdict = self._ledger.judge(actor, sequence=sequence, generated=generated, num_frames=num_frames, most_frames=session.most_frames)
        if verdict is Verdict.OUT_OF_SEQUENCE:
            return self._hello_required(peer, "sequence", f"message {message.sequence} is out of sequence")
        if verdict is Verdict.INCONSISTENT:
            raise MalformedMessage(f"generated_frames {message.generated_frames} is impossible", "unexpected")
        if not self._credit.on_message_received(peer, message.num_unrolls, now):
            return self._hello_required(peer, "credit", f"no credit for {message.num_unrolls} unrolls")
        if verdict is Verdict.DUPLICATE:
            self._on_refused("duplicate")
            grants = self._credit.on_consumed(message.num_unrolls)
            return [self._ack(peer, message.sequence), *self._announce(grants)]

        try:
            arrays = receive_arrays(payload, message.num_unrolls, self._layout, message.compression)
            unrolls = self._unrolls(arrays, actor, message)
            frames = frames_by_task(unrolls)
            temperatures = inverse_temperatures_of(arrays, self._layout.burn_in) if message.episodes else {}
        except Exception as error:  # as in `on_message`
            reason = error.reason if isinstance(error, MalformedMessage) else FAILED
            if reason is FAILED:
                warn_failed(peer)
            else:
                warn_limited("refused unrolls", "unrolls that cannot be used were dropped", actor=actor[0], reason=str(error))
            self._ledger.refuse(actor, sequence=sequence, generated=generated, num_frames=num_frames, reason=MALFORMED)
            self._on_unrolls(message.num_unrolls, MALFORMED)
            grants = self._credit.on_consumed(message.num_unrolls)
            rejection = Rejected(sequence=message.sequence, reason=reason, granted_unrolls=self._credit.granted(peer))
            return [Reply(peer, rejection), *self._announce(grants)]
        # Record it before queueing it: the training thread may consume it at once.
        self._ledger.receive(actor, sequence=sequence, generated=generated, frames=frames)
        self._queue.put(unrolls)
        self._on_unrolls(message.num_unrolls, None)
        for episode in message.episodes:
            self._on_episode(episode, temperatures.get((episode.environment_slot, episode.episode_id)))
        return [self._ack(peer, message.sequence)]

    def _unrolls(self, arrays: Arrays, actor: ActorKey, message: Unrolls) -> list[QueuedUnroll]:
        # Burn-in steps are counted in the unroll that they repeat.
        num_steps = arrays["row_valid"][:, self._layout.burn_in :].sum(axis=1, dtype=np.int64).tolist()
        if (held := sum(num_steps) * self._action_repeat) != message.num_frames:
            raise MalformedMessage(f"num_frames {message.num_frames}, but its valid rows have {held}", "array")
        self._check_episodes(message)
        versions = arrays["policy_version"][:, 0].tolist()
        task_ids = arrays["task_id"].tolist()
        return [
            QueuedUnroll(arrays, row, actor, (versions[row][0], versions[row][1]), task_ids[row], num_steps[row] * self._action_repeat)
            for row in range(message.num_unrolls)
        ]

    def _check_episodes(self, message: Unrolls) -> None:
        # Each step of an environment ends at most one game.
        most = message.num_unrolls * self._layout.new_steps
        if len(message.episodes) > most:
            raise MalformedMessage(f"{len(message.episodes)} episodes in {most} agent steps", "unexpected")
        num_tasks = self._layout.num_tasks
        for episode in message.episodes:
            if num_tasks is not None and episode.task_id >= num_tasks:
                raise MalformedMessage("an episode of an unknown task", "unexpected")
            if abs(episode.episode_return) > LARGEST_RETURN:
                raise MalformedMessage(f"an episode with a return above {LARGEST_RETURN:g}", "unexpected")

    def _ack(self, peer: Peer, sequence: int) -> Reply:
        return Reply(peer, Ack(sequence=sequence, granted_unrolls=self._credit.granted(peer)))

    def _announce(self, grants: list[Grant], skip: Peer | None = None) -> list[Reply]:
        return [Reply(grant.peer, Credit(granted_unrolls=grant.granted_unrolls)) for grant in grants if grant.peer != skip]

    def _end(self, peer: Peer) -> list[Reply]:
        self._forget(peer)
        return self._announce(self._credit.on_goodbye(peer))

    def _forget(self, peer: Peer) -> None:
        session = self._sessions.pop(peer, None)
        if session is None:
            return
        self._ledger.on_session_end(session.actor)
        self._claimed.pop(peer, None)
        self._departed.pop(peer, None)
        if self._peers.get(session.actor[0]) == peer:
            del self._peers[session.actor[0]]


def inverse_temperatures_of(arrays: Arrays, burn_in: int) -> dict[tuple[int, int], float]:
    """1/tau of the newest row of every game in the message, by (environment_slot, episode_id).

    Of U unrolls, T steps each; one pass over the rows, however many games are asked for.
    """
    # ``episode_id`` numbers the game of the first row after the burn-in; each reset from there on begins the next. [U, T]
    resets = arrays["game_reset"][:, burn_in + 1 : -1]
    is_last = np.ones((resets.shape[0], resets.shape[1] + 1), np.bool_)
    is_last[:, :-1] = resets
    unrolls, rows = np.nonzero(is_last)
    # The nth of an unroll's last rows of games belongs to its nth game.
    numbers = np.cumsum(is_last, axis=1)[unrolls, rows] - 1
    slots = arrays["environment_slot"][unrolls].tolist()
    games = (arrays["episode_id"][unrolls] + numbers).tolist()
    values = arrays["inverse_temperature"][unrolls, burn_in + rows].tolist()
    return dict(zip(zip(slots, games, strict=True), values, strict=True))
