"""``python -m herd.bench.fan.pullers --config FILE ...``: many simulated weight clients in one thread, for ``herd bench fan-out``.

Each is a real client of the parameter server with a connection of its own: it asks for anything newer than what it has, every so many
seconds, and checks what it is given as an actor does. Beyond that it looks whether a version goes back, and whether all its slices say
that they are of that version. At most ``--concurrent`` of them have a request under way at a time, because all of their answers arrive in
this one machine's memory; whoever is due later waits for a turn.

Commands on standard input, a line of JSON each: ``start`` (ask from now on), ``count`` (who holds which version), ``result``. It ends
with its input.
"""

from __future__ import annotations

import argparse
import heapq
import random
import select
import struct
import sys
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from herd.bench.fan.limits import CLIENTS_PER_CONTEXT
from herd.bench.fan.lines import LineReader, say
from herd.config.contract import contract_digest
from herd.envs.make import environment_spec
from herd.service.startup import parse_settings
from herd.wire.sockets import new_context
from herd.wire.weights_client import MAX_SLICE_BYTES, WeightsClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings
    from herd.wire.sockets import Context
    from herd.wire.weights_client import Version, WeightsFrame

POLL_SECONDS = 0.02
"""Longest sleep: commands wait as long."""
SWEEP_SECONDS = 0.25
"""Between looks at a client that hears nothing: its repetitions and its connection wait as long."""
MARK = struct.Struct("<qqq")
"""At both ends of a slice: lineage, updates, index."""


def marked(version: Version, index: int, num_bytes: int, filling: bytes) -> bytes:
    """A slice of ``num_bytes`` that says at both ends what it is of; between them ``filling``."""
    mark = MARK.pack(*version, index)
    return mark + filling[: num_bytes - 2 * MARK.size] + mark


def is_whole(frame: WeightsFrame) -> bool:
    """Whether all slices say that they belong to the version."""
    marks = [(MARK.unpack(slice_[: MARK.size]), MARK.unpack(slice_[-MARK.size :])) for slice_ in frame.slices]
    return all(mark == ((*frame.version, index),) * 2 for index, mark in enumerate(marks))


class Puller:
    """One client, and what it has seen."""

    def __init__(self, client: WeightsClient) -> None:
        self.client = client
        self.version: Version | None = None
        self.is_asking = False
        self.went_back = 0
        self.in_part = 0

    def ask(self) -> None:
        """Send the question."""
        self.client.request(self.version)
        self.is_asking = True

    def receive(self) -> tuple[bool, Version | None]:
        """(answered, the version that came with it)."""
        if not self.is_asking:
            self.client.poll()  # an answer to a request that was given up is read too
            return False, None
        frame = self.client.poll()
        if frame is None:
            self.is_asking = self.client.pending
            return not self.is_asking, None
        self.is_asking = False
        self.went_back += self.version is not None and frame.version <= self.version
        self.in_part += not is_whole(frame)
        self.version = frame.version
        return True, frame.version


class PullingCrowd:
    """All clients of this process."""

    def __init__(
        self, settings: RunSettings, endpoints: Sequence[str], *, count: int, ask_seconds: float, concurrent: int, seed: int
    ) -> None:
        """``endpoints``: servers, dealt to the clients in turn."""
        contract = contract_digest(settings, environment_spec(settings.env))
        self._ask_seconds = ask_seconds
        self._concurrent = concurrent
        self._random = random.Random(seed)
        self._contexts: list[Context] = []
        self._pullers: list[Puller] = []
        self._by_descriptor: dict[int, Puller] = {}
        self._epoll = select.epoll()
        for place in range(count):
            if place % CLIENTS_PER_CONTEXT == 0:
                self._contexts.append(new_context(settings.security))
            client = WeightsClient(
                self._contexts[-1],
                endpoints[place % len(endpoints)],
                run_id=settings.name,
                contract=contract,
                max_slice_bytes=MAX_SLICE_BYTES,
            )
            puller = Puller(client)
            self._pullers.append(puller)
            descriptor = client.socket.fileno()
            self._by_descriptor[descriptor] = puller
            self._epoll.register(descriptor, select.EPOLLIN)
        self._due: list[tuple[float, int]] = []
        self._waiting: deque[Puller] = deque()
        self._asking: dict[int, Puller] = {}
        self._places = {id(puller): place for place, puller in enumerate(self._pullers)}
        self._sweep_at = 0.0
        self._num_answered = 0
        self._held_at: dict[int, list[float]] = {}

    def start(self) -> None:
        """Each begins at a moment of its own within the interval."""
        now = time.monotonic()
        self._due = [(now + self._random.uniform(0.0, self._ask_seconds), place) for place in range(len(self._pullers))]
        heapq.heapify(self._due)

    def turn(self, timeout_seconds: float) -> None:
        """Ask whatever is due and may be, take what came."""
        if self._due:
            timeout_seconds = max(0.0, min(timeout_seconds, self._due[0][0] - time.monotonic()))
        events = self._epoll.poll(timeout_seconds)
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            self._waiting.append(self._pullers[heapq.heappop(self._due)[1]])
        self._fill()
        for descriptor, _ in events:
            self._serve(self._by_descriptor[descriptor])
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            for puller in list(self._asking.values()):
                self._serve(puller)

    def count(self) -> dict[str, Any]:
        """How many hold which version (by its updates; 0 for none), and how many answers came."""
        held = Counter(puller.version[1] if puller.version is not None else 0 for puller in self._pullers)
        return {"held": dict(held), "answers": self._num_answered}

    def result(self) -> dict[str, Any]:
        """Everything; ``held_at``: by updates, when each client had that version or a newer one.

        In monotonic seconds, which all processes of a machine share.
        """
        clients = [puller.client for puller in self._pullers]
        return {
            **self.count(),
            "held_at": self._held_at,
            "went_back": sum(puller.went_back for puller in self._pullers),
            "in_part": sum(puller.in_part for puller in self._pullers),
            "malformed": sum(client.num_malformed for client in clients),
            "refused": next((client.refused for client in clients if client.refused is not None), None),
            "bytes_in": sum(client.socket.bytes_in for client in clients),
        }

    def close(self) -> None:
        """Close every connection."""
        for puller in self._pullers:
            puller.client.close()
        for context in self._contexts:
            context.destroy()

    def _fill(self) -> None:
        while self._waiting and len(self._asking) < self._concurrent:
            puller = self._waiting.popleft()
            self._asking[id(puller)] = puller
            puller.ask()
            self._serve(puller)  # the descriptor speaks once: what came with the sending is read now

    def _serve(self, puller: Puller) -> None:
        before = puller.version
        answered, version = puller.receive()
        if not answered:
            return
        now = time.monotonic()
        self._num_answered += 1
        self._asking.pop(id(puller), None)
        heapq.heappush(self._due, (now + self._ask_seconds * self._random.uniform(0.95, 1.05), self._places[id(puller)]))
        if version is not None:
            # Who skips a version has what it was waiting for when it has a newer one.
            for updates in range(before[1] + 1 if before is not None else 1, version[1] + 1):
                self._held_at.setdefault(updates, []).append(now)


def serve(crowd: PullingCrowd, commands: LineReader) -> None:
    """Do what the commands say, until they end."""
    try:
        while True:
            crowd.turn(POLL_SECONDS)
            for command in commands.read():
                if command["do"] == "start":
                    crowd.start()
                elif command["do"] == "count":
                    say(crowd.count())
                elif command["do"] == "result":
                    say(crowd.result())
                else:
                    raise ValueError(f"unknown command {command['do']!r}")
    except EOFError:
        return
    finally:
        crowd.close()


def main(argv: Sequence[str]) -> int:
    """Simulate; the exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--endpoint", action="append", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--ask-seconds", type=float, required=True)
    parser.add_argument("--concurrent", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options, words = parser.parse_known_args(argv)
    crowd = PullingCrowd(
        parse_settings("actor", words),
        options.endpoint,
        count=options.count,
        ask_seconds=options.ask_seconds,
        concurrent=options.concurrent,
        seed=options.seed,
    )
    say({"ready": options.count})
    serve(crowd, LineReader(sys.stdin.fileno()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
