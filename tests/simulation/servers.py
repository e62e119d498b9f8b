"""Parameter server, bandit, replay and population as processes of the world."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from herd_bandit.exchange import ExchangeHandler, new_window
from herd_bandit.keeper import Keeper
from herd_bandit.task_bandit import draw_generator, new_bandits
from herd_paramserver.leases import Liveness, PlaceLeases
from herd_paramserver.replica import Following, ReplicaHandler
from herd_paramserver.requests import RootHandler
from herd_paramserver.server import ParameterServer
from herd_paramserver.store import WeightsStore
from herd_paramserver.upstream import Upstream
from herd_population.controller import Controller
from herd_population.journal import Journal
from herd_population.server import Reports
from herd_replay.assembly import Assembler
from herd_replay.exchange import ReplayHandler, Replica
from herd_replay.segments import SegmentLog
from herd_replay.snapshot import SnapshotError, SnapshotFolder, capture
from herd_replay.store import EpisodeStore

from herd.config.services import BanditSettings, PopulationSettings
from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.files import FileError
from herd.protocols.bandit.messages import BANDIT
from herd.protocols.population.journal import Decided, journal_file, read_journal
from herd.protocols.population.messages import POPULATION
from herd.protocols.replay.messages import REPLAY
from herd.protocols.replay.pieces import PieceLayout
from herd.rpc.serving import AtMostOnce, Received, Reply, ServedRun
from herd.service.inbox import RequestInbox
from herd.transport import Limits
from tests.simulation.disk import SimPath
from tests.simulation.world import NULL, EndedItself, Process, Violation, World

RUN, CONTRACT = "run", "contract"
ACTION_REPEAT = 4
LEASE_SECONDS = 8.0
SNAPSHOT_SECONDS = 6.0
LAYOUT = UnrollLayout(unroll_length=2, frame_stack=1, frame_shape=(1, 1, 1), actions=discrete(2), num_parameters=2, num_tasks=1)
ROOT, REPLICA, BANDIT_ADDRESS, REPLAY_ADDRESS, POPULATION_ADDRESS = (
    f"sim://{name}" for name in ("root", "replica", "bandit", "replay", "population")
)
FIRST_SETTINGS = ({"lr": 1.0}, {"lr": 2.0})


def served(world: World, address: str) -> ServedRun:
    return ServedRun(address, RUN, CONTRACT, range(world.plan.num_agents))


class ParameterServerProcess(Process):
    """The root, or with ``parent`` a replica."""

    def __init__(self, world: World, address: str, parent: str | None = None) -> None:
        super().__init__(world, address.removeprefix("sim://"))
        self.address, self.parent = address, parent
        self.leases: PlaceLeases | None = None
        self.stores: tuple[WeightsStore, ...] = ()

    def boot(self) -> None:
        num_agents, now = self.world.plan.num_agents, self.clock()
        self.stores = tuple(WeightsStore() for _ in range(num_agents))
        router = self.context.server(self.address, Limits())
        common = {"served": served(self.world, "--paramserver"), "stores": self.stores, "telemetry": NULL, "meters": NULL}
        if self.parent is None:
            liveness = Liveness(num_agents, now=now)
            self.leases = PlaceLeases(liveness, now=now, lease_seconds=LEASE_SECONDS)
            root = RootHandler(stores=self.stores, leases=self.leases, liveness=liveness)
            self.server = ParameterServer(router, root, **common, clock=self.clock)
            return
        handler = ReplicaHandler(stores=self.stores, upstream=self.parent)
        upstream = Upstream(
            self.context,
            self.parent,
            run_id=RUN,
            contract=CONTRACT,
            followings=[Following(store, self.parent, now=now) for store in self.stores],
            handler=handler,
            meters=NULL,
            clock=self.clock,
            random=self.world.random,
        )
        self.server = ParameterServer(router, handler, **common, upstream=upstream, clock=self.clock)

    def turn(self) -> None:
        self.server.turn()
        if self.leases is not None:
            self.world.sometimes("an actor was moved to another place", self.leases.num_moved > 0)

    def end(self) -> None:
        # CONTRIBUTING.md, "Simulating a run": nobody else can tell a new learner which lineage clients have from the one before.
        if self.parent is None and self.world.unwritten_lineages:
            self.world.sometimes("the root was spared")
        else:
            super().end()

    def ended(self) -> None:
        self.stores, self.leases = (), None


class BanditProcess(Process):
    def __init__(self, world: World) -> None:
        super().__init__(world, "bandit")
        self.counted: frozenset[float] = frozenset()
        """Returns that the present state contains; each game has its own."""
        self.saved: dict[tuple[int, float], frozenset[float]] = {}
        self.promised = 0
        """Games in the last state that was certainly written."""
        self.settings = BanditSettings(
            bandits=1, candidates=2, tile_accuracy=1.0, snapshot_interval_seconds=SNAPSHOT_SECONDS, history_interval_seconds=1e9
        )

    def boot(self) -> None:
        world = self.world
        self.bandits = new_bandits(self.settings, ["game"], seed=0, num_agents=world.plan.num_agents)
        window = new_window()
        settings: Any = SimpleNamespace(directory=SimPath(self.folder), name=RUN, bandit=self.settings)
        self.keeper = Keeper(settings, bandits=self.bandits, window=window, meters=NULL, clock=self.clock)
        num_restored = self.keeper.restore(NULL)
        if num_restored < self.promised:
            raise Violation(f"the bandit continued with {num_restored} games, and had written {self.promised}")
        self.counted = self.saved[self._state] if num_restored else frozenset()
        world.sometimes("the bandit continued from its state", num_restored > 0)
        self.restored = dict(window.all())
        self.handler = ExchangeHandler(
            self.settings, action_repeat=ACTION_REPEAT, bandits=self.bandits, window=window, generator=draw_generator(self.bandits, seed=0)
        )
        router = self.context.server(BANDIT_ADDRESS, Limits())
        self.inbox = RequestInbox(router, BANDIT, served(world, "--bandit"), self._answer, NULL, clock=self.clock)

    @property
    def _state(self) -> tuple[int, float]:
        return self.keeper.num_episodes, sum(float(bandit.tally.return_sums.sum()) for bandit in self.bandits.values())

    def _answer(self, received: Received) -> Reply:
        answer = self.handler.answer(received)
        for outcome, number in answer.reports.items():
            self.world.sometimes(f"a return was {outcome}", number > 0)
        self.world.sometimes(f"a request to the bandit was {answer.outcome}")
        client, number = str(received.message.client), received.message.id
        self.world.sometimes(
            "the bandit had counted a report before it started again", answer.outcome == "repeated" and self.restored.get(client) == number
        )
        return answer

    def count(self, episode_return: float) -> None:
        """Called when the bandit counts a return."""
        if episode_return in self.counted:
            raise Violation(f"the bandit counted the return {episode_return:.0f} twice")
        self.counted |= {episode_return}

    def turn(self) -> None:
        self.inbox.serve_waiting()
        self._save(self.keeper.tick)

    def leave(self) -> None:
        self._save(self.keeper.save)

    def _save(self, write: Any) -> None:
        self.saved[self._state] = self.counted
        write()
        if self.keeper.age_seconds == 0.0:
            self.promised = self.keeper.num_episodes


class ReplayProcess(Process):
    def __init__(self, world: World) -> None:
        super().__init__(world, "replay")
        self.num_stored = 0
        self.written: list[set[Any]] = [set()]
        """Games in the last snapshot that was certainly written, and in those that were begun after it."""

    def boot(self) -> None:
        world = self.world
        replica = Replica(0, 1)
        self.assembler = Assembler(1 << 20)
        self.store = EpisodeStore(capacity_steps=40, max_bytes=lambda: 1 << 20, unroll_length=LAYOUT.new_steps, log=SegmentLog(4096))
        self.writers: AtMostOnce[None] = AtMostOnce(64, in_order=True)
        folder: Any = SimPath(self.folder)
        self.snapshots = SnapshotFolder(folder, run=RUN, contract=CONTRACT, replica=replica, layout=PieceLayout(LAYOUT))
        restored = self.snapshots.load(self.store, self.assembler, self.writers)
        if restored.lost:
            raise Violation(f"replay lost a part of its snapshot: {restored.lost}")
        if self.keys() not in self.written:
            raise Violation(f"replay continued with {self.keys()}, and had written {self.written}")
        world.sometimes("replay continued from its snapshot", self.store.num_episodes > 0)
        self._captured: Any = None
        self._due = self.clock() + SNAPSHOT_SECONDS
        self.handler = ReplayHandler(
            layout=PieceLayout(LAYOUT),
            replica=replica,
            assembler=self.assembler,
            store=self.store,
            writers=self.writers,
            random=np.random.default_rng(0),
            part_bytes=64,
        )
        router = self.context.server(REPLAY_ADDRESS, Limits())
        self.inbox = RequestInbox(router, REPLAY, served(world, "--replay"), self._answer, NULL, clock=self.clock)

    def keys(self) -> set[Any]:
        return {self.store.record(stored).key for stored in self.store.episodes()}

    def _answer(self, received: Received) -> Reply:
        before = self.store.inserted_episodes
        answer = self.handler.answer(received)
        self.num_stored += self.store.inserted_episodes - before
        self.world.sometimes(f"a request to replay was {answer.outcome}")
        return answer

    def turn(self) -> None:
        self.inbox.serve_waiting()
        if self._captured is not None:  # written later than it was captured, as by a thread
            captured, self._captured = self._captured, None
            self._write(*captured)
        elif self.clock() >= self._due:
            self._captured = capture(self.store, self.assembler, self.writers, is_last=False), self.keys()
            self._due = self.clock() + SNAPSHOT_SECONDS

    def leave(self) -> None:
        self._write(capture(self.store, self.assembler, self.writers, is_last=True), self.keys())

    def _write(self, captured: Any, keys: set[Any]) -> None:
        self.written.append(keys)
        with suppress(SnapshotError):
            self.snapshots.save(captured)
            self.written = [keys]


class PopulationProcess(Process):
    def __init__(self, world: World) -> None:
        super().__init__(world, "population")
        self.settings = PopulationSettings(
            strategy="pbt", fitness="episode_return", fitness_episodes=2, burn_in_env_frames=0, threshold=0.0, perturb_probability=0.5
        )
        self.promised = 0
        """Events that were certainly written."""

    def boot(self) -> None:
        run_dir = SimPath(self.folder)
        self.controller = Controller(
            self.settings, num_members=len(FIRST_SETTINGS), seed=0, is_allowed=lambda values: values.keys() == {"lr"}
        )
        try:
            self.journal = Journal(run_dir, run=RUN, members=FIRST_SETTINGS, note=self.controller.note)  # type: ignore[arg-type]
        except FileError as error:
            if "No space left" not in str(error):
                raise
            raise EndedItself from error
        events = list(read_journal(journal_file(run_dir)))  # type: ignore[arg-type]
        if len(events) < self.promised:
            raise Violation(f"the journal has {len(events)} events, and had {self.promised}")
        numbers = [event.number for event in events if isinstance(event, Decided)]
        if any(a >= b for a, b in pairwise(numbers)):
            raise Violation(f"order numbers are not increasing: {numbers}")
        self.world.sometimes("the population continued from its journal", len(events) > 1)
        self.promised = len(events)
        reports = Reports(SimpleNamespace(log=NULL), self.controller, self, NULL)  # type: ignore[arg-type]
        router = self.context.server(POPULATION_ADDRESS, Limits())
        self.inbox = RequestInbox(router, POPULATION, served(self.world, "--population"), reports.answer, NULL, clock=self.clock)

    def append(self, event: Any) -> None:
        """Stands between the reports and the journal, to know what was promised."""
        self.journal.append(event)
        self.promised += 1
        self.world.sometimes(f"the population noted that an order was {event.event}")

    def turn(self) -> None:
        self.inbox.serve_waiting()
