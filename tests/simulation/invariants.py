"""What must hold after every event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.actors import Actor
from tests.simulation.learners import CAPACITY, Shard
from tests.simulation.servers import LEASE_SECONDS, ParameterServerProcess, ReplayProcess
from tests.simulation.world import Process, Violation

if TYPE_CHECKING:
    from tests.simulation.run import Cluster


class Invariants:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._visible: dict[tuple[Process, int, int], tuple[int, int]] = {}
        self._num_stored: tuple[int, int] = (0, 0)

    def check(self, process: Process) -> None:
        """Check what the step of this process can have broken."""
        if not process.is_alive:
            return
        match process:
            case Shard():
                self._ledger(process)
            case ParameterServerProcess():
                self._versions(process)
                self._places(process)
            case ReplayProcess():
                self._games(process)
            case Actor():
                self._actor(process)

    def _ledger(self, shard: Shard) -> None:
        """Every frame is accounted for, once; the copy is whole; queues are bounded."""
        learner = shard.learner
        if learner.is_restarting:
            return
        if not shard.ledger.snapshot().is_balanced:
            raise Violation(f"the ledger of {shard.name} is not balanced: {shard.ledger.snapshot()}")
        credit = shard.credit
        waiting = len(shard.queue) + len(shard.unrolls)
        if credit.granted_unused + credit.held > CAPACITY or credit.held != waiting:
            raise Violation(f"{shard.name} holds {waiting} unrolls, {credit.held} in its account, and granted {credit.granted_unused}")
        if shard.replay.pending_bytes > 4000:
            raise Violation(f"{shard.name} keeps {shard.replay.pending_bytes} bytes for replay")
        num_frames = sum(other.ledger.totals().consumed for other in learner.shards)
        if num_frames != learner.num_frames:
            raise Violation(f"the ledger has {num_frames} consumed frames, and {learner.num_frames} were trained on")
        if learner.num_starts == 1 and learner.num_lost():
            raise Violation(f"{learner.num_lost()} frames were lost by a learner that never ended")
        member, model = learner.member.membership, learner.model
        if model.copies != [copy.number for copy in member.ancestry] or learner.settings != member.settings:
            raise Violation(f"agent {learner.agent} has weights of {model.copies} and is {member}")

    def _versions(self, process: ParameterServerProcess) -> None:
        """What is visible is complete, is what a learner published, and never goes back."""
        for agent, store in enumerate(process.stores):
            if store.visible is None:
                continue
            key = (process, process.num_starts, agent)
            version = (store.visible.version.lineage, store.visible.version.updates)
            if self._visible.get(key, (0, 0)) > version:
                raise Violation(f"{process.name} went from {self._visible[key]} back to {version}")
            if self._visible.get(key) == version:
                continue
            self._visible[key] = version
            learner = self._cluster.learners[agent]
            contents = [bytes(payload).decode() for payload in store.visible.payloads]
            count = len(learner.shards)
            expected = [f"{agent} {version} {learner.published.get(version)} {rank}/{count}" for rank in range(count)]
            if contents != expected:
                raise Violation(f"{process.name} serves {contents} instead of {expected}")

    def _places(self, process: ParameterServerProcess) -> None:
        if process.leases is not None:
            places = list(process.leases.holders().values())
            if len(set(places)) < len(places):
                raise Violation(f"the root leases a place twice: {places}")

    def _games(self, replay: ReplayProcess) -> None:
        stored = (replay.num_starts, replay.store.inserted_episodes)
        if stored == self._num_stored:
            return
        self._num_stored = stored
        keys = [replay.store.record(each).key for each in replay.store.episodes()]
        if len(set(keys)) < len(keys):
            raise Violation(f"replay stores a game twice: {keys}")

    def _actor(self, actor: Actor) -> None:
        """Its memory is bounded, and the root gave its place to nobody else while its lease runs."""
        stint = actor.stint
        if stint is None:
            return
        if stint.links.num_unacked > 2 * CAPACITY or stint.bandit.num_unconfirmed > 300:
            raise Violation(f"{actor.name} keeps {stint.links.num_unacked} messages and {stint.bandit.num_unconfirmed} reports")
        root, now = self._cluster.root, actor.world.now
        if now - root.disturbed_at < 2 * LEASE_SECONDS:
            return  # a restarted root learns from renewals who has which place; a clock that jumps ends leases early
        holders = {} if root.leases is None else root.leases.holders()
        there = [each for each in self._cluster.actors if each.stint is not None and each.stint.place == stint.place]
        # Not those that the root has moved meanwhile, and that do not know it yet because the answer was late or lost.
        both = [each for each in there if each.holds_until > now and holders.get(each.lease._holder, stint.place) == stint.place]
        if len(both) > 1:
            raise Violation(f"{' and '.join(each.name for each in both)} are all {stint.place}")
