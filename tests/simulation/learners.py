"""A learner of one or more shards: I/O as in its thread, and a training loop whose update adds one."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from herd_learner.group.turns import Turn, VersionSchedule, combine
from herd_learner.intake.ingest import Ingest, Reply
from herd_learner.intake.ledger import Ledger, LedgerSnapshot, frames_by_task
from herd_learner.intake.queue import QueuedUnroll, UnrollQueue, is_stale
from herd_learner.population.member import FitnessWindow, Member, Membership
from herd_learner.record.lineage import LineageError, keep_lineage, open_lineage

from herd.protocols.population.client import PopulationClient
from herd.protocols.population.journal import Settings
from herd.protocols.replay.client import ReplayClient
from herd.protocols.replay.samples import EpisodePart, SampledEpisode
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.metrics import LEARNER_RESTART, STALE
from herd.protocols.weights.client import WeightsPublisher
from herd.rpc.codec import encode
from herd.rpc.serving import ServedRun
from herd.run.checkpoints import CheckpointError, TornCheckpointError, newest_accepted, verified_contents, write_checkpoint
from herd.service.inbox import Inbox
from herd.transport import Limits, Peer
from tests.simulation.disk import SimPath
from tests.simulation.servers import (
    ACTION_REPEAT,
    CONTRACT,
    FIRST_SETTINGS,
    LAYOUT,
    POPULATION_ADDRESS,
    REPLAY_ADDRESS,
    ROOT,
    RUN,
)
from tests.simulation.world import NULL, EndedItself, Process, Violation, World

if TYPE_CHECKING:
    from herd.protocols.population.messages import Order

CAPACITY = 5
CREDIT_EXPIRES_SECONDS = 20.0
CHECKPOINT_SECONDS = 5.0
DRAW_SECONDS = 4.0
Mark = tuple[int, int, int, int, int]
"""(actor_index, process, environment_slot, episode_id, index_in_episode): which unroll it is."""


def mark_of(unroll: QueuedUnroll) -> Mark:
    arrays, row, (index, incarnation) = unroll.arrays, unroll.row, unroll.actor
    numbers = (int(arrays[name][row]) for name in ("environment_slot", "episode_id", "index_in_episode"))
    return (index, incarnation >> 8, *numbers)  # type: ignore[return-value]


@dataclass
class Model:
    """What is learned, and what came of it: the part of a checkpoint that a copy replaces."""

    trained: list[Any] = field(default_factory=list)
    """Marks of the unrolls behind these weights, with the agent that trained on them."""
    copies: list[int] = field(default_factory=list)
    """Numbers of the orders by which the weights were copied."""

    @property
    def digest(self) -> str:
        return sha256(repr((self.trained, self.copies)).encode()).hexdigest()[:16]


class Shard(Process):
    """The I/O of one shard."""

    def __init__(self, world: World, learner: Learner, rank: int) -> None:
        super().__init__(world, f"learner-{learner.agent}-{rank}")
        self.learner, self.rank = learner, rank
        self.address = f"sim://{self.name}"
        self.ledger, self.queue = Ledger(), UnrollQueue()
        self.population: PopulationClient | None = None
        self.unrolls: list[QueuedUnroll] = []
        """The next batch, if it is complete."""

    @property
    def folder(self) -> str:
        return f"/run/learner-{self.learner.agent}"

    def start(self) -> None:
        self.learner.start()

    def boot(self) -> None:
        """The learner starts all of its shards together, see `begin`."""
        self._has_begun = False

    def restart(self) -> None: ...

    def ended(self) -> None:
        self.learner.ended()

    def leave(self) -> None:
        self.learner.leave()

    def begin(self, ledger: Ledger, schedule: VersionSchedule) -> None:
        world, learner = self.world, self.learner
        self.ledger, self.schedule, self.queue, self.unrolls = ledger, schedule, UnrollQueue(), []
        self.server = self.context.server(self.address, Limits())
        names: dict[str, Any] = {"run_id": RUN, "agent": learner.agent, "contract": CONTRACT}
        seams: dict[str, Any] = {"clock": self.clock, "random": world.random}
        self.publisher = WeightsPublisher(self.context, ROOT, **names, **seams)
        self.replay = ReplayClient(
            self.context, [REPLAY_ADDRESS], **names, **seams, layout=LAYOUT, max_pending_bytes=2000, writer=world.random.getrandbits(60)
        )
        self.population = None
        if world.plan.num_agents > 1 and self.rank == 0:
            self.population = PopulationClient(self.context, POPULATION_ADDRESS, interval_seconds=1.0, **seams)
        self.credit = CreditPool(CAPACITY, expires_seconds=CREDIT_EXPIRES_SECONDS)
        self.ingest = Ingest(
            run=ServedRun("--learner", RUN, CONTRACT, range(learner.agent, learner.agent + 1)),
            layout=LAYOUT,
            action_repeat=ACTION_REPEAT,
            ledger=ledger,
            queue=self.queue,
            credit=self.credit,
            on_episode=lambda episode, _: learner.episode(episode.episode_return),
            on_unrolls=self._on_unrolls,
            on_refused=lambda reason: world.sometimes(f"unrolls were refused: {reason}"),
        )
        self.inbox = Inbox(self.server, self._on_message, NULL, max_burst=64, clock=self.clock)
        self._answers: list[Reply] = []
        self._has_begun = True
        self._expires_at = self._draws_at = 0.0
        self._last_part: EpisodePart | None = None

    def turn(self) -> None:
        if not self._has_begun:
            return
        self.inbox.serve_waiting()
        answers, self._answers = self._answers, []
        self.send(answers)
        self.publisher.poll()
        if self.population is not None:
            self.population.poll()
        now = self.clock()
        if now >= self._expires_at:
            self._expires_at = now + 1.0
            for peer in self.server.departures():
                self.ingest.on_departed(peer, now)
            self.send(self.ingest.expire(now))
        self._draw(now)
        self.learner.train()

    def send(self, replies: list[Reply]) -> None:
        for reply in replies:
            self.server.send(reply.peer, encode(reply.message))

    def consumed(self, num_unrolls: int) -> None:
        self.send(self.ingest.on_consumed(num_unrolls))

    def _on_message(self, peer: Peer, frames: Any) -> bool:
        self._answers += self.ingest.on_message(peer, frames, self.clock())
        return self.ingest.has_session(peer)

    def _on_unrolls(self, num_unrolls: int, reason: str | None) -> None:
        if reason is not None:
            raise Violation(f"{self.name} found an unroll {reason}")
        self.learner.received.update(map(mark_of, list(self.queue._unrolls)[-num_unrolls:]))

    def insert(self, unrolls: list[QueuedUnroll]) -> None:
        for unroll in unrolls:
            arrays = {name: array[unroll.row : unroll.row + 1] for name, array in unroll.arrays.items()}
            self.replay.insert(arrays, 1, np.array([unroll.actor], np.int64))

    def _draw(self, now: float) -> None:
        """Draw from replay now and then, once it has something; whole games part by part."""
        for sample in self.replay.poll(0.0):
            parts = [sample.part] if isinstance(sample, SampledEpisode) else [unroll.part for unroll in sample.unrolls]
            for part in parts:
                if part is not None:
                    self._check(part)
            self._last_part = parts[0] if isinstance(sample, SampledEpisode) else None
        if now < self._draws_at or self.replay.num_requests or not self.replay.num_steps_stored:
            return
        self._draws_at = now + DRAW_SECONDS
        part = self._last_part
        if part is not None and part.stop_step < part.episode_steps:
            self.replay.request_next(part)
        else:
            self.replay.request(1, whole_episodes=self.world.plan.whole_episodes)

    def _check(self, part: EpisodePart) -> None:
        """Compare what replay gives with what was played: each step's reward says which step it was."""
        arrays = LAYOUT.allocate(1)
        for unroll in part.unrolls():
            unroll.write_into(arrays, 0)
            index = int(arrays["index_in_episode"][0])
            num_steps = int(arrays["row_valid"][0].sum())
            rewards = arrays["rewards"][0][:num_steps].tolist()
            if rewards != [reward_of(part.key.episode_id, index + step) for step in range(num_steps)]:
                raise Violation(f"replay gave {rewards} as steps {index}... of {part.key}")
            self.world.sometimes("an unroll was replayed")


def reward_of(episode_id: int, step: int) -> float:
    return float(episode_id * 32 + step)


class Learner:
    """The training loop that all shards of one agent go through together. A shard that ends takes the others with it."""

    def __init__(self, world: World, agent: int) -> None:
        self.world, self.agent = world, agent
        self.shards = [Shard(world, self, rank) for rank in range(world.plan.num_shards)]
        self.updates = 0
        self.received: set[Mark] = set()
        """Unrolls that were in a queue of any of its processes."""
        self.published: dict[tuple[int, int], str] = {}
        """Version -> digest of its weights, over all of its processes."""
        self.promised = 0
        """Serial number of the last checkpoint that was certainly written."""
        self.num_starts = 0
        self.num_updates_ever = 0
        self._serial = 0
        self.is_restarting = True
        """Whether its shards are not all there, or have nothing in memory yet."""
        self._is_expected = False
        """Whether the supervisor is about to start it again."""

    @property
    def run_dir(self) -> Any:
        return SimPath(self.shards[0].folder)

    @property
    def is_running(self) -> bool:
        return all(shard.is_running for shard in self.shards)

    @property
    def lineage(self) -> int:
        return self.shards[0].schedule.lineage

    def start(self) -> None:
        """Start all shards from the newest checkpoint."""
        self._is_expected = False
        self.num_starts += 1
        for shard in self.shards:
            Process.start(shard)
        if self.world.step(self.shards[0], self._restore):
            self.is_restarting = False
            self.world.sometimes("a learner continued from its checkpoint", self.updates > 0)

    def ended(self) -> None:
        """A shard has ended: the others notice, and the supervisor starts all again."""
        if self._is_expected:
            return
        self.is_restarting = self._is_expected = True
        world, random = self.world, self.world.random

        def end_others() -> None:
            for shard in self.shards:
                if shard.is_alive:
                    shard.is_alive = False
                    world.network.drop(shard)
            world.at(world.now + random.choice([0.2, 1.0, 8.0]), self.start)

        world.at(world.now + random.choice([0.0, 0.5, 5.0]), end_others)

    def leave(self) -> None:
        """Write the last checkpoint, when nothing can be acknowledged any more."""
        if self.is_restarting or not self.is_running:
            return
        for shard in self.shards:
            shard.server.is_closed = True
        self._save()

    def episode(self, episode_return: float) -> None:
        """Count a finished game."""
        if episode_return in self.games:
            raise Violation(f"agent {self.agent} counted the game {episode_return:.0f} twice")
        self.games.append(episode_return)
        self.member.window.add(0, episode_return)

    def _restore(self) -> None:
        self.model, self.games, self.consumed, self.updates, self.num_frames = Model(), [], [], 0, 0
        window = FitnessWindow(["game"], {}, num_games=2)
        first: Settings = {**FIRST_SETTINGS[self.agent]}
        self.member = Member(Membership(settings=first), window, fitness="episode_return")
        self.settings = first
        found = newest_accepted(self.run_dir / "checkpoints", self._load)
        serial, snapshot, least = 0, None, 1
        if found is not None:
            state, model = found
            serial, snapshot, least = state["serial"], LedgerSnapshot.from_json(state["ledger"]), state["lineage"] + 1
            self.model, self.updates = model, state["updates"]
            self.games, self.consumed = state["games"], [tuple(mark) for mark in state["consumed"]]
            self.num_frames = state["num_frames"]
            self.member.restore(state["population"], learner_updates=self.updates, env_frames=len(self.consumed))
            self.settings = self.member.membership.settings
        if serial < self.promised:
            raise Violation(f"agent {self.agent} continued from checkpoint {serial}, and had written {self.promised}")
        try:
            lineage = self._open_lineage(least)
        except LineageError as error:
            if "No space left" not in str(error):
                raise
            raise EndedItself from error
        self._saves_at, self._reports_at = self.world.now + CHECKPOINT_SECONDS, 0.0
        for shard in self.shards:
            ledger = Ledger(None if snapshot is None else snapshot if shard.rank == 0 else snapshot.without_totals())
            shard.begin(ledger, VersionSchedule(lineage, is_first=shard.rank == 0, num_shards=len(self.shards)))

    def _load(self, path: Any) -> tuple[dict[str, Any], Model]:
        try:
            _, contents = verified_contents(path)
        except TornCheckpointError:
            self.world.sometimes("a torn checkpoint was passed over")
            raise
        state = json.loads(bytes(contents["state.json"]))
        model = json.loads(bytes(contents["model.json"]))
        return state, Model([tuple(_tuples(mark)) for mark in model["trained"]], model["copies"])

    def train(self) -> None:
        """Go once through the loop, if all shards are there: what they agree on and publish is decided by the product."""
        if not self.is_running or self.is_restarting:
            return
        world, plan = self.world, self.world.plan
        order = None if self.shards[0].population is None else self.shards[0].population.order
        for shard in self.shards:
            if not shard.unrolls:
                newest = (shard.schedule.lineage, self.updates)
                shard.unrolls, stale = shard.queue.take(1, lambda unroll: is_stale(unroll.policy_version, newest, plan.max_policy_lag), 0.0)  # noqa: B023
                if stale:
                    world.sometimes("stale unrolls were dropped")
                    shard.ledger.drop(STALE, frames_by_task(stale))
                    shard.consumed(len(stale))
        agreed = combine([self._turn_of(shard, order) for shard in self.shards])
        turns = [shard.schedule.adopt(agreed, self._open_lineage) for shard in self.shards]
        world.sometimes("the parameter server had a newer lineage", agreed.newer_lineage >= agreed.lineage)
        turns = [shard.schedule.enter(turn, partial(self._publish, shard)) for shard, turn in zip(self.shards, turns, strict=True)]
        if agreed.is_ready:
            self._update()
        for shard, turn in zip(self.shards, turns, strict=True):
            if turn.may_publish and shard.schedule.is_due:
                self._publish(shard)
        if agreed.checkpoint_due:
            self._saves_at = world.now + CHECKPOINT_SECONDS
            self._save()
        if agreed.is_ordered:
            assert order is not None
            self._carry_out(order)
        if plan.num_agents > 1 and (agreed.is_ordered or world.now >= self._reports_at):
            self._reports_at = world.now + 1.0
            self._report()

    def _turn_of(self, shard: Shard, order: Order | None) -> Turn:
        return Turn(
            is_ready=bool(shard.unrolls),
            checkpoint_due=self.world.now >= self._saves_at,
            may_publish=len(self.shards) == 1 or shard.publisher.confirmed or shard.publisher.superseded,
            newer_lineage=shard.publisher.newer_lineage or 0,
            lineage=shard.schedule.lineage,
            is_ordered=self.member.is_new(order),
        )

    def _update(self) -> None:
        self.updates += 1
        self.num_updates_ever += 1
        for shard in self.shards:
            unrolls, shard.unrolls = shard.unrolls, []
            for unroll in unrolls:
                mark = mark_of(unroll)
                if mark in self.consumed:
                    raise Violation(f"agent {self.agent} trained on {mark} twice")
                self.consumed.append(mark)
                self.num_frames += unroll.num_frames
                self.model.trained.append((self.agent, *mark))
            shard.ledger.consume(frames_by_task(unrolls))
            shard.consumed(len(unrolls))
            shard.insert(unrolls)
            shard.schedule.updated(self.updates, self.world.plan.publish_interval)

    def _publish(self, shard: Shard) -> None:
        shard.schedule.published()
        version, digest, count = (shard.schedule.lineage, self.updates), self.model.digest, len(self.shards)
        if self.published.setdefault(version, digest) != digest:
            raise Violation(f"agent {self.agent} published two weights as {version}")
        shard.publisher.publish(*version, shard.rank, count, f"{self.agent} {version} {digest} {shard.rank}/{count}".encode())

    def _open_lineage(self, at_least: int) -> int:
        failures: list[OSError] = []
        lineage = open_lineage(self.run_dir, at_least, on_failure=failures.append, now=lambda: self.world.now)
        unwritten = self.world.unwritten_lineages
        if failures:
            unwritten[self.agent] = lineage
        elif lineage > unwritten.get(self.agent, 0):
            unwritten.pop(self.agent, None)
        return lineage

    def _save(self, donor: Model | None = None, after: Membership | None = None) -> bool:
        self._serial += 1
        serial = self._serial
        model = self.model if donor is None else donor
        state = {
            "serial": serial,
            "updates": self.updates,
            "lineage": self.lineage,
            "ledger": self.snapshot().as_json(),
            "games": self.games,
            "consumed": self.consumed,
            "num_frames": self.num_frames,
            "population": self.member.as_json(after),
        }
        files = {"state.json": json.dumps(state).encode(), "model.json": json.dumps(vars(model)).encode()}
        try:
            write_checkpoint(self.run_dir / "checkpoints", self.updates, files, 2)
        except CheckpointError:
            self.world.sometimes("a checkpoint could not be written")
            return False
        self.promised = serial
        with suppress(OSError):
            keep_lineage(self.run_dir, self.lineage)
            self.world.unwritten_lineages.pop(self.agent, None)
        self.member.checkpoint = (self.updates, len(self.consumed))
        return True

    def snapshot(self) -> LedgerSnapshot:
        return LedgerSnapshot.of_shards([LedgerSnapshot.from_json(shard.ledger.snapshot().as_json()) for shard in self.shards])

    def _report(self) -> None:
        client = self.shards[0].population
        assert client is not None
        client.standing = self.member.member_report(
            run_id=RUN,
            agent=self.agent,
            contract=CONTRACT,
            env_frames=len(self.consumed),
            learner_updates=self.updates,
            num_episodes=len(self.games),
        )

    def _carry_out(self, order: Order) -> None:
        """Carry out an order as the product does: it is done when its checkpoint is on disk."""
        world, donor, theirs = self.world, None, None
        if order.copied is not None:
            path = SimPath(f"/run/learner-{order.copied.donor}") / "checkpoints" / f"{order.copied.learner_updates:012d}"
            try:
                state, donor = self._load(path)
                theirs = Membership.model_validate(state["population"]["membership"])
                if order.copied.applied != (0 if theirs.applied is None else theirs.applied.number):
                    raise CheckpointError("replaced by a checkpoint with other orders")  # noqa: TRY301  as the product does
            except CheckpointError as error:
                world.sometimes("an order could not be carried out")
                self.member.decline(order, str(error))
                return
            donor.copies.append(order.number)
        after = self.member.membership.after(order, theirs, agent=self.agent, learner_updates=self.updates, env_frames=len(self.consumed))
        if not self._save(donor, after):
            self.member.decline(order, "its checkpoint could not be written")
            return
        self.settings = {setting.key: setting.value for setting in order.settings}
        if donor is not None:
            world.sometimes("a member was copied")
            self.model = donor
        self.member.become(after)
        if donor is not None:
            lineage = self._open_lineage(self.lineage + 1)
            for shard in self.shards:
                shard.schedule.lineage = lineage

    def num_lost(self) -> int:
        """Frames lost because a learner ended."""
        return sum(shard.ledger.totals().dropped[LEARNER_RESTART] for shard in self.shards)


def _tuples(value: Any) -> Any:
    return [_tuples(each) if isinstance(each, list) else each for each in value]
