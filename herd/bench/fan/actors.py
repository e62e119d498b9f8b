"""``python -m herd.bench.fan.actors --config FILE ...``: many simulated actors in one thread, for ``herd bench fan-in``.

Each is a real client of the unroll stream with a connection of its own: hello, credit, unrolls, acknowledgement, resend. It plays
nothing: the unrolls are made up. Without ``--interval`` the next ones are ready as soon as there is credit for them, as where the learner
is what bounds a run; with it they are ready every so many seconds, as where the games are. All send the same arrays, but for
``episode_id``, in which each actor counts its unrolls from 0.

Commands on standard input, a line of JSON each: ``connect``, ``send``, ``stop`` (finish what is begun, then tell). It ends with its input.
"""

from __future__ import annotations

import argparse
import heapq
import random
import select
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.bench.fan.limits import CLIENTS_PER_CONTEXT
from herd.bench.fan.lines import LineReader, say
from herd.bench.synthetic import synthetic_unrolls
from herd.config.contract import contract_digest
from herd.envs.make import environment_spec
from herd.service.startup import parse_settings
from herd.wire.run_layout import run_layout
from herd.wire.sockets import new_context
from herd.wire.unroll_client import UnrollClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings
    from herd.wire.sockets import Context

SWEEP_SECONDS = 0.5
"""Between looks at an actor to which nothing comes: half of what it waits before it repeats a question."""
POLL_SECONDS = 0.02
"""Longest sleep: commands and sweeps wait as long."""
MAX_UNACKED = 2
"""Messages of one actor under way: one set of buffers travels while the other is filled."""
BROKEN_EVERY_SECONDS = 0.2
"""Between connections that are broken: each at a moment of its own."""


class SimulatedActor:
    """One actor: as long as it may, it asks for credit and sends."""

    def __init__(
        self,
        index: int,
        client: UnrollClient,
        arrays: dict[str, Any],
        *,
        num_frames: int,
        max_messages: int | None = None,
        is_paced: bool = False,
    ) -> None:
        """``num_frames``: env frames of a message. ``max_messages``: that it sends. ``is_paced``: somebody says when it has played."""
        self.index = index
        self.is_paced = is_paced
        self.client = client
        self.is_sending = False
        self.is_closed = False
        self.has_played = True
        """The next unrolls are ready."""
        self.num_sent = 0
        self._arrays = arrays
        self._unrolls = len(arrays["episode_id"])
        self._num_frames = num_frames
        self._max_messages = max_messages

    @property
    def num_unrolls(self) -> int:
        """Handed over for sending."""
        return self.num_sent * self._unrolls

    @property
    def is_done(self) -> bool:
        """Everything sent is acknowledged, and there will be no more."""
        return self.client.num_unacked == 0 and not (self.is_sending and self._may_send)

    def finish(self) -> bool:
        """Say goodbye once everything is done; tell whether that was now. Its credit then goes to those who still need some."""
        if self.is_closed or not self.is_done:
            return False
        self.client.close()
        self.is_closed = True
        return True

    def turn(self) -> None:
        """Do all that can be done now. A socket's descriptor speaks once for many messages, and a send may take its word: read last."""
        before = -1
        while self.client.bytes_in != before and not self.is_closed:
            before = self.client.bytes_in
            if self.is_sending:
                self._send()
            self.client.poll()

    def _send(self) -> None:
        while self._may_send and self.has_played and self.client.num_unacked < MAX_UNACKED:
            if not self.client.has_credit(self._unrolls):
                self.client.request_credit(self._unrolls)
                return
            first = self.num_unrolls
            numbered = {**self._arrays, "episode_id": np.arange(first, first + self._unrolls, dtype=np.int64)}
            self.client.send_unrolls(numbered, num_frames=self._num_frames)
            self.num_sent += 1
            self.has_played = not self.is_paced

    @property
    def _may_send(self) -> bool:
        return self._max_messages is None or self.num_sent < self._max_messages


class Crowd:
    """All actors of this process."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        first_index: int,
        count: int,
        unrolls_per_message: int,
        max_messages: int | None = None,
        interval_seconds: float | None = None,
        breaks: int = 0,
    ) -> None:
        """``interval_seconds``: that a message takes to play. ``breaks``: connections that are broken while unrolls are sent, each once."""
        self._settings = settings
        self._indices = range(first_index, first_index + count)
        self._unrolls = unrolls_per_message
        self._max_messages = max_messages
        self._interval = interval_seconds
        self._random = random.Random(settings.seed + first_index)
        self._playing: list[tuple[float, int]] = []
        """When which actor has played, next first."""
        self._spec = environment_spec(settings.env)
        self._layout = run_layout(settings, self._spec)
        self._contract = contract_digest(settings, self._spec)
        self._arrays = synthetic_unrolls(self._layout, unrolls_per_message, seed=settings.seed)
        self._contexts: list[Context] = []
        self._by_index: dict[int, SimulatedActor] = {}
        self._actors: dict[int, SimulatedActor] = {}
        """By their sockets' descriptors."""
        self._epoll = select.epoll()
        self._sweep: deque[SimulatedActor] = deque()
        self._swept_at = time.monotonic()
        self._to_break = set(self._random.sample(self._indices, min(breaks, count)))
        self._break_at = 0.0

    def connect(self) -> None:
        """Open every connection and say hello."""
        num_frames = self._unrolls * self._layout.new_steps * self._spec.action_repeat
        for place, index in enumerate(self._indices):
            if place % CLIENTS_PER_CONTEXT == 0:
                self._contexts.append(new_context(self._settings.security))
            client = UnrollClient(
                self._contexts[-1],
                self._settings.actor.learner[0],
                layout=self._layout,
                run_id=self._settings.name,
                contract=self._contract,
                actor_index=index,
                max_unrolls=self._unrolls,
                compression=self._settings.actor.compression,
            )
            actor = SimulatedActor(
                index,
                client,
                self._arrays,
                num_frames=num_frames,
                max_messages=self._max_messages,
                is_paced=self._interval is not None,
            )
            self._by_index[index] = actor
            self._sweep.append(actor)
            self._watch(actor)
            self.turn(0.0)

    def send(self) -> None:
        """Let all of them send from now on; those that play first each begin at a moment of their own."""
        now = time.monotonic()
        for actor in self._by_index.values():
            actor.is_sending = True
            if self._interval is not None:
                actor.has_played = False
                self._playing.append((now + self._random.uniform(0.0, self._interval), actor.index))
            actor.turn()
        heapq.heapify(self._playing)

    def stop(self) -> None:
        """Begin no further message."""
        for actor in self._by_index.values():
            actor.is_sending = False

    def finish(self) -> bool:
        """Let those that are done say goodbye; tell whether all have."""
        for actor in self._by_index.values():
            descriptor = -1 if actor.is_closed else actor.client.socket.fileno()
            if actor.finish():
                del self._actors[descriptor]
        return not self._actors

    def turn(self, timeout_seconds: float) -> None:
        """Serve whoever was answered, and some of the others."""
        if self._playing:
            timeout_seconds = max(0.0, min(timeout_seconds, self._playing[0][0] - time.monotonic()))
        events = self._epoll.poll(timeout_seconds)
        now = time.monotonic()
        self._play(now)
        for descriptor, _ in events:
            actor = self._actors.get(descriptor)
            if actor is not None:
                actor.turn()
                if actor.index in self._to_break and actor.client.num_unacked and now >= self._break_at:
                    self._break(actor, now)
        due = len(self._sweep) * (now - self._swept_at) / SWEEP_SECONDS
        if due >= 1.0:
            self._swept_at = now
            for _ in range(min(int(due), len(self._sweep))):
                self._sweep[0].turn()
                self._sweep.rotate(-1)

    def _play(self, now: float) -> None:
        """Whoever has played may send, and plays on; one that waits to send what it has played begins the next late, as an actor does."""
        while self._playing and self._playing[0][0] <= now:
            due, index = heapq.heappop(self._playing)
            actor = self._by_index[index]
            assert self._interval is not None
            is_late = actor.has_played
            actor.has_played = True
            actor.turn()
            heapq.heappush(self._playing, (now + SWEEP_SECONDS if is_late else max(now, due + self._interval), index))

    def result(self) -> dict[str, Any]:
        """What was sent, by actor and in all."""
        clients = [actor.client for actor in self._by_index.values()]
        return {
            "sent_by_actor": {index: actor.num_unrolls for index, actor in self._by_index.items()},
            "frames_sent": sum(client.generated_frames for client in clients),
            "unrolls_unacknowledged": sum(client.num_unacked for client in clients) * self._unrolls,
            "unrolls_resent": sum(client.num_unrolls_resent for client in clients),
            "sessions": sum(client.num_sessions for client in clients),
            "rejected": sum(client.num_rejected for client in clients),
            "refused": next((client.refused for client in clients if client.refused is not None), None),
            "cpu_seconds": time.process_time(),
        }

    def close(self) -> None:
        """Close every connection."""
        for actor in self._by_index.values():
            if not actor.is_closed:
                actor.client.close()
        for context in self._contexts:
            context.destroy()

    def _watch(self, actor: SimulatedActor) -> None:
        descriptor = actor.client.socket.fileno()
        self._actors[descriptor] = actor
        self._epoll.register(descriptor, select.EPOLLIN)

    def _break(self, actor: SimulatedActor, now: float) -> None:
        """Cut a connection that has something under way: what it carried is sent again."""
        self._to_break.remove(actor.index)
        self._break_at = now + BROKEN_EVERY_SECONDS
        descriptor = actor.client.socket.fileno()
        self._epoll.unregister(descriptor)
        del self._actors[descriptor]
        actor.client.restart_connection()
        self._watch(actor)


def serve(crowd: Crowd, commands: LineReader) -> None:
    """Do what the commands say, until they end."""
    is_stopping = False
    try:
        while True:
            crowd.turn(POLL_SECONDS)
            for command in commands.read():
                if command["do"] == "connect":
                    crowd.connect()
                elif command["do"] == "send":
                    crowd.send()
                elif command["do"] == "stop":
                    is_stopping = True
                    if command.get("now", True):
                        crowd.stop()
                else:
                    raise ValueError(f"unknown command {command['do']!r}")
            if is_stopping and crowd.finish():
                is_stopping = False
                say(crowd.result())
    except EOFError:
        return
    finally:
        crowd.close()


def main(argv: Sequence[str]) -> int:
    """Simulate; the exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--first-index", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--unrolls-per-message", type=int, required=True)
    parser.add_argument("--max-messages", type=int)
    parser.add_argument("--interval", type=float)
    parser.add_argument("--breaks", type=int, default=0)
    options, words = parser.parse_known_args(argv)
    crowd = Crowd(
        parse_settings("actor", words),
        first_index=options.first_index,
        count=options.count,
        unrolls_per_message=options.unrolls_per_message,
        max_messages=options.max_messages,
        interval_seconds=options.interval,
        breaks=options.breaks,
    )
    say({"ready": options.count})
    serve(crowd, LineReader(sys.stdin.fileno()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
