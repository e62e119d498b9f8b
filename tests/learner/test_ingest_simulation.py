"""Real clients of actors against the real ingest, over a network that loses messages, with learners that restart from a checkpoint."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from herd_learner.intake.ingest import Ingest, Reply
from herd_learner.intake.ledger import Ledger, LedgerSnapshot, frames_by_task
from herd_learner.intake.queue import UnrollQueue
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.metrics import LEARNER_RESTART
from herd.rpc.codec import encode
from herd.rpc.serving import ServedRun
from herd.transport import Frame, Peer
from tests.learner.small_unrolls import ACTION_REPEAT, FRAMES_PER_UNROLL, LAYOUT, small_arrays

NUM_ACTORS = 3
MAX_UNROLLS = 3
CAPACITY = 7
Message = list[bytes]
Draw = Callable[[st.SearchStrategy[Any]], Any]
EVENTS = [
    *["everybody_turns"] * 4,
    *["learner_trains"] * 4,
    *["actor_plays"] * 3,
    *["learner_reads"] * 3,
    *["learner_saves"] * 2,
    *["time_passes"] * 2,
    "connection_breaks",
    "connections_return",
    "actor_is_killed",
    "learner_restarts",
]


class Wire:
    """Stands in for a DEALER and its connection. Both directions are first-in-first-out; a break loses the newest messages in flight."""

    def __init__(self, wires: dict[Peer, Wire], name: str) -> None:
        self.connected, self.num_connections = True, 1
        self.to_learner: deque[Message] = deque()
        self.to_actor: deque[Message] = deque()
        self.bytes_in = self.bytes_out = 0
        wires[Peer(name.encode())] = self

    def send(self, frames: Sequence[Frame]) -> bool:
        if self.connected:
            self.to_learner.append([bytes(frame) for frame in frames])
        return self.connected

    def receive(self) -> Message | None:
        return self.to_actor.popleft() if self.to_actor else None

    def close(self) -> None:
        self.connected = False

    def connect(self) -> None:
        """Replace the connection by a new one."""
        self.connected = True
        self.num_connections += 1

    def lose(self, queue: deque[Message], num_kept: int) -> None:
        while len(queue) > num_kept:
            queue.pop()


class Actor:
    """One incarnation of an actor and everything that it has sent."""

    def __init__(self, index: int, incarnation: int, wires: dict[Peer, Wire], clock: Any) -> None:
        self.key = (index, incarnation)
        self.client = UnrollClient(
            SimpleNamespace(client=lambda _address, name, _limits: Wire(wires, name)),  # type: ignore[arg-type]
            "tcp://learner",
            layout=LAYOUT,
            run_id="run",
            contract="c",
            actor_index=index,
            max_unrolls=MAX_UNROLLS,
            incarnation=incarnation,
            clock=clock,
            random=Random(incarnation),
        )
        self.marks: list[int] = []

    def play(self, num_unrolls: int) -> None:
        """Send a message if there is credit, otherwise ask for credit."""
        self.client.request_credit(num_unrolls)
        self.client.poll()
        if self.client.has_credit(num_unrolls):
            first = self.key[1] * 10**6 + len(self.marks)
            marks = list(range(first, first + num_unrolls))
            self.marks += marks
            self.client.send_unrolls(small_arrays(num_unrolls, marks=marks), num_frames=num_unrolls * FRAMES_PER_UNROLL)


class Simulation(RuleBasedStateMachine):
    """`consumed` is the history of the current learner: a restart resets it to the checkpoint's."""

    @initialize(learner_may_die=st.booleans())
    def start(self, learner_may_die: bool) -> None:
        self.learner_may_die = learner_may_die
        self.now = 0.0
        self.wires: dict[Peer, Wire] = {}
        self.num_incarnations = 0
        self.actors = [self._new_actor(index) for index in range(NUM_ACTORS)]
        self.dead: list[Actor] = []
        self.consumed: list[int] = []
        self.num_restarts = 0
        self.checkpoint: tuple[str, list[int]] = ("", [])
        self._start_learner(Ledger())

    def _new_actor(self, index: int) -> Actor:
        self.num_incarnations += 1
        return Actor(index, self.num_incarnations, self.wires, lambda: self.now)

    def _start_learner(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.queue = UnrollQueue()
        self.credit = CreditPool(CAPACITY, expires_seconds=60.0)
        self.ingest = Ingest(
            run=ServedRun("actor.learner", "run", "c", range(1)),
            layout=LAYOUT,
            action_repeat=ACTION_REPEAT,
            ledger=ledger,
            queue=self.queue,
            credit=self.credit,
            on_episode=lambda *_: None,
            on_unrolls=lambda *_: None,
        )

    def _reply(self, replies: list[Reply]) -> None:
        for reply in replies:
            if self.wires[reply.peer].connected:
                self.wires[reply.peer].to_actor.append([bytes(frame) for frame in encode(reply.message)])

    def _deliver(self, peer: Peer) -> None:
        self._reply(self.ingest.on_message(peer, self.wires[peer].to_learner.popleft(), self.now))

    # A single rule draws the event: with several rules, Hypothesis would leave most of them out of any one run, and only combinations fail.
    @rule(event=st.sampled_from(EVENTS), data=st.data())
    def happens(self, event: str, data: st.DataObject) -> None:
        getattr(self, event)(data.draw)

    def actor_plays(self, draw: Draw) -> None:
        draw(st.sampled_from(self.actors)).play(draw(st.integers(1, MAX_UNROLLS)))

    def learner_reads(self, draw: Draw) -> None:
        waiting = sorted(peer for peer, wire in self.wires.items() if wire.to_learner)
        if waiting:
            self._deliver(draw(st.sampled_from(waiting)))

    def everybody_turns(self, draw: Draw) -> None:
        for actor in self.actors:
            actor.play(draw(st.integers(1, MAX_UNROLLS)))
        self._round()

    def _round(self) -> None:
        for peer in list(self.wires):
            while self.wires[peer].to_learner:
                self._deliver(peer)
        for actor in self.actors:
            actor.client.poll()

    def learner_trains(self, draw: Draw) -> None:
        self._train(draw(st.integers(1, 4)))

    def _train(self, num_unrolls: int) -> None:
        unrolls, _ = self.queue.take(num_unrolls, lambda _: False, 0)
        self.consumed += [int(unroll.arrays["episode_id"][unroll.row]) for unroll in unrolls]
        self.ledger.consume(frames_by_task(unrolls))
        self._reply(self.ingest.on_consumed(len(unrolls)))

    def time_passes(self, draw: Draw) -> None:
        self._wait(draw(st.sampled_from([0.3, 2.0, 6.0, 40.0])))

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        for actor in self.actors:
            actor.client.poll()
        self._reply(self.ingest.expire(self.now))

    def connection_breaks(self, draw: Draw) -> None:
        wire = self._wire(draw(st.sampled_from(self.actors)))
        for queue in (wire.to_learner, wire.to_actor):
            wire.lose(queue, draw(st.integers(0, len(queue))))
        wire.connected = False
        if draw(st.booleans()):
            wire.connect()

    def connections_return(self, _draw: Draw | None = None) -> None:
        for actor in self.actors:
            if not self._wire(actor).connected:
                self._wire(actor).connect()

    def _wire(self, actor: Actor) -> Wire:
        return self.wires[Peer(f"actor/{actor.key[0]}/{actor.key[1]:x}".encode())]

    def actor_is_killed(self, draw: Draw) -> None:
        index = draw(st.integers(0, NUM_ACTORS - 1))
        self._wire(self.actors[index]).connected = False
        self.dead.append(self.actors[index])
        self.actors[index] = self._new_actor(index)

    def learner_saves(self, _draw: Draw) -> None:
        self.checkpoint = (json.dumps(self.ledger.snapshot().as_json()), list(self.consumed))

    def learner_restarts(self, draw: Draw) -> None:
        """Restart from the checkpoint. Answers of the dead learner may still arrive; unread messages may or may not be lost."""
        if not self.learner_may_die:
            return  # in half of the runs, where no frame may be lost
        for wire in self.wires.values():
            wire.lose(wire.to_actor, draw(st.integers(0, len(wire.to_actor))))
            wire.lose(wire.to_learner, draw(st.integers(0, len(wire.to_learner))))
            if wire.connected:
                wire.connect()
        state, consumed = self.checkpoint
        self.consumed = list(consumed)
        self._start_learner(Ledger(LedgerSnapshot.from_json(json.loads(state)) if state else None))
        self.num_restarts += 1

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        if not hasattr(self, "ledger"):
            return
        snapshot = self.ledger.snapshot()
        assert snapshot.is_balanced
        assert snapshot.total.consumed == len(self.consumed) * FRAMES_PER_UNROLL
        assert snapshot.total.in_flight == len(self.queue) * FRAMES_PER_UNROLL
        assert len(set(self.consumed)) == len(self.consumed)
        for incarnation in range(1, self.num_incarnations + 1):
            of_one = [mark for mark in self.consumed if mark // 10**6 == incarnation]
            assert of_one == sorted(of_one)
        assert self.credit.granted_unused + self.credit.held <= CAPACITY
        assert self.credit.held == len(self.queue)
        assert snapshot.total.dropped.keys() <= {LEARNER_RESTART}

    def teardown(self) -> None:
        """Once failures stop, all remaining messages arrive, and each frame is in exactly one account."""
        if not hasattr(self, "ledger"):
            return
        self.connections_return()
        last = [len(actor.marks) for actor in self.actors]
        for _ in range(60):
            for actor, num_marks in zip(self.actors, last, strict=True):
                if len(actor.marks) == num_marks:
                    actor.play(1)
            self._round()
            self._train(1)
            self._round()
            self._wait(1.0)
            self.nothing_is_counted_twice()
        while len(self.queue):
            self._train(1)
        self.nothing_is_counted_twice()
        snapshot = self.ledger.snapshot()
        for actor, num_marks in zip(self.actors, last, strict=True):
            assert len(actor.marks) == num_marks + 1
            assert actor.client.num_unacked == 0
            assert snapshot.accounts[actor.key][1] == actor.client.generated_frames
            if not self.num_restarts:
                assert [mark for mark in self.consumed if mark // 10**6 == actor.key[1]] == actor.marks
        if not self.num_restarts:
            assert snapshot.report()["dropped"] == {}
        assert snapshot.total.generated == sum(generated for _, generated in snapshot.accounts.values())
        assert snapshot.total.in_flight == 0
        for actor in self.dead:
            _, generated = snapshot.accounts.get(actor.key, (0, 0))
            assert generated <= actor.client.generated_frames


Simulation.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # Shrinking a failure of that many steps would exceed the time-out of a test.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestSimulation = Simulation.TestCase
