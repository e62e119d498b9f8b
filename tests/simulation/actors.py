"""An actor that plays games of a few steps, as fast as its credit allows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from herd.protocols.bandit.client import BanditClient
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.links import UnrollLinks
from herd.protocols.unrolls.messages import EpisodeReport
from herd.protocols.weights.client import WeightsClient
from herd.protocols.weights.messages import Place
from herd.protocols.weights.places import IndexLease
from tests.simulation.learners import Learner, Mark, reward_of
from tests.simulation.servers import ACTION_REPEAT, BANDIT_ADDRESS, CONTRACT, LAYOUT, LEASE_SECONDS, RUN
from tests.simulation.world import Process, Violation, World

UNROLL_SECONDS = 2.0
DRAIN_SECONDS = 2.0
ASK_OTHERS_SECONDS = 0.5


@dataclass
class Game:
    """The game of one environment."""

    slot: int
    length: int
    episode_id: int = 0
    step: int = 0
    resets: bool = True
    """Whether the next row begins a game."""


class Stint:
    """What an actor does in one place."""

    def __init__(self, actor: Actor, place: Place) -> None:
        world, plan = actor.world, actor.world.plan
        self.actor, self.place, self.learner = actor, place, actor.learners[place.agent]
        self.process_number = world.random.getrandbits(40)
        seams: dict[str, Any] = {"clock": actor.clock, "random": world.random}
        names: dict[str, Any] = {"run_id": RUN, "agent": place.agent, "contract": CONTRACT}
        shards = self.learner.shards
        self.clients = [
            UnrollClient(
                actor.context,
                shards[(place.actor_index + link) % len(shards)].address,
                layout=LAYOUT,
                actor_index=place.actor_index,
                max_unrolls=plan.num_environments,
                incarnation=self.process_number << 8 | link,
                **names,
                **seams,
            )
            for link in range(len(shards))
        ]
        self.links = UnrollLinks(self.clients, actor.clock)
        self.weights = WeightsClient(actor.context, actor.paramserver, **names, **seams)
        first_slot = place.actor_index * plan.num_environments
        self.bandit = BanditClient(
            actor.context,
            BANDIT_ADDRESS,
            task_ids=[0] * plan.num_environments,
            timeout_seconds=0.0,
            first_slot=first_slot,
            **names,
            **seams,
        )
        self.games = [Game(first_slot + number, self._length()) for number in range(plan.num_environments)]
        self.version: tuple[int, int] | None = None
        self.sent: deque[tuple[int, int, list[Mark]]] = deque()
        """Link, sequence and marks of messages whose acknowledgement was not seen yet."""
        self._asks_at = 0.0
        self._plays_at = self._waits_since = actor.clock()
        self.leaves_at: float | None = None

    def _length(self) -> int:
        return self.actor.world.random.randint(1, 7)

    def turn(self) -> None:
        actor, now = self.actor, self.actor.clock()
        self.links.poll()
        self.bandit.poll()
        self._look_at_acknowledgements()
        if self.leaves_at is not None:
            return
        if now >= self._asks_at or self.weights.pending:
            self._asks_at = now + UNROLL_SECONDS / 2
            self.weights.request(self.version)
        frame = self.weights.poll(0.0)
        if frame is not None:
            self._load(frame)
        if self.version is None or now < self._plays_at:
            return
        count = actor.world.plan.num_environments
        if not self.links.wait_for_credit(count, 0.0):
            if now - self._waits_since > ASK_OTHERS_SECONDS:
                for client in self.clients:
                    client.request_credit(count)
            return
        self._play()
        self._plays_at = self._waits_since = now + actor.world.random.choice([0.1, 1.0, 1.9]) * UNROLL_SECONDS

    def close(self) -> None:
        self.links.close()
        self.weights.close()
        self.bandit.close()

    def _load(self, frame: Any) -> None:
        """Load weights, which must be one version as its learner published it."""
        slices = [bytes(each).decode() for each in frame.slices]
        version = frame.version
        if self.version is not None and version <= self.version:
            raise Violation(f"{self.actor.name} got {version} after {self.version}")
        digest = self.learner.published.get(version)
        expected = [f"{self.place.agent} {version} {digest} {rank}/{len(slices)}" for rank in range(len(self.learner.shards))]
        if slices != expected:
            raise Violation(f"{self.actor.name} got {slices} instead of {expected}")
        self.version = version
        self.actor.newest[self.place.agent] = max(version, self.actor.newest.get(self.place.agent, version))

    def _play(self) -> None:
        arrays = LAYOUT.allocate(len(self.games))
        episodes: list[EpisodeReport] = []
        marks: list[Mark] = []
        num_steps = 0
        for row, game in enumerate(self.games):
            fields = {name: array[row] for name, array in arrays.items()}
            marks.append((self.place.actor_index, self.process_number, game.slot, game.episode_id, game.step))
            arrays["environment_slot"][row] = game.slot
            arrays["episode_id"][row], arrays["index_in_episode"][row] = game.episode_id, game.step
            arrays["policy_version"][row] = self.version
            arrays["inverse_temperature"][row] = self.bandit.inverse_temperatures[row]
            for step in range(LAYOUT.unroll_length):
                fields["game_reset"][step] = fields["core_reset"][step] = game.step == 0
                if game.step == game.length:  # this step only starts the next game
                    game.episode_id, game.step, game.length = game.episode_id + 1, 0, self._length()
                    self.bandit.begin([row])
                    continue
                fields["row_valid"][step] = True
                fields["rewards"][step] = reward_of(game.episode_id, game.step)
                game.step += 1
                num_steps += 1
                if game.step == game.length:
                    fields["terminated"][step] = True
                    episodes.append(self._finish(row, game))
            fields["game_reset"][-1] = fields["core_reset"][-1] = game.step == 0
        sent = self.links.send_unrolls(arrays, num_frames=num_steps * ACTION_REPEAT, episodes=episodes)
        self.sent.append((sent.link, sent.sequence, marks))

    def _finish(self, environment: int, game: Game) -> EpisodeReport:
        actor = self.actor
        actor.num_games[0] += 1
        episode_return = float(actor.num_games[0])
        self.bandit.finish(environment, episode_id=game.episode_id, episode_return=episode_return, agent_steps=game.length)
        return EpisodeReport(
            task_id=0, environment_slot=game.slot, episode_id=game.episode_id, episode_return=episode_return, agent_steps=game.length
        )

    def _look_at_acknowledgements(self) -> None:
        """What a learner acknowledges, it must have had in a queue."""
        for link, sequence, marks in list(self.sent):
            if sequence <= self.clients[link].acked_sequence:
                self.sent.remove((link, sequence, marks))
                if missing := [mark for mark in marks if mark not in self.learner.received]:
                    raise Violation(f"{missing} of agent {self.place.agent} was acknowledged and never in a queue")


class Actor(Process):
    def __init__(self, world: World, number: int, paramserver: str, learners: list[Learner], num_games: list[int]) -> None:
        super().__init__(world, f"actor-{number}")
        self.paramserver, self.learners = paramserver, learners
        self.num_games = num_games
        """One number for all actors: games that have ended. A game's return is its number."""
        self.newest: dict[int, tuple[int, int]] = {}
        """Newest version that it has loaded, by agent."""
        self.stint: Stint | None = None
        self.holds_until = 0.0
        """The world's time until which the root reserves its place for it."""
        self._leaving: list[Stint] = []

    def boot(self) -> None:
        self.lease = IndexLease(self.context, self.paramserver, run_id=RUN, clock=self.clock, random=self.world.random)
        self.stint, self._leaving = None, []
        self.newest = {}
        self.holds_until = self._asked_at = 0.0

    def turn(self) -> None:
        self._renew()
        place = self.lease.place
        if place is not None and (self.stint is None or self.stint.place != place):
            if self.stint is not None:
                others = [each for each in self.world.processes if isinstance(each, Actor) and each is not self and each.stint is not None]
                is_taken = any(each.stint is not None and each.stint.place == self.stint.place for each in others)
                self.world.sometimes("an actor was late to renew its lease, and another had its place", is_taken)
                self.stint.leaves_at = self.clock() + DRAIN_SECONDS
                self._leaving.append(self.stint)
            self.stint = Stint(self, place)
        for stint in [*self._leaving, self.stint]:
            if stint is not None:
                stint.turn()
        for stint in list(self._leaving):
            if stint.links.num_unacked == 0 or self.clock() >= (stint.leaves_at or 0.0):
                self._leaving.remove(stint)
                stint.close()

    def _renew(self) -> None:
        request, renews_at = self.lease._request, self.lease._renew_at
        number = request.request_id
        self.lease.poll()
        if self.lease._renew_at != renews_at:
            self.holds_until = self._asked_at + LEASE_SECONDS  # at least: the root counts from when it got the request
        if request.request_id != number:
            self._asked_at = self.world.now

    def leave(self) -> None:
        for stint in [*self._leaving, self.stint]:
            if stint is not None:
                stint.close()
        self.lease.close()

    def ended(self) -> None:
        self.stint, self._leaving = None, []
