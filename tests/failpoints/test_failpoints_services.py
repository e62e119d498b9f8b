"""Bandit, replay and population, killed at every edge of their files and answers, with clients that remember what was promised."""

from __future__ import annotations

import signal
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from herd.config.run import RunSettings
from herd.protocols.bandit.messages import ExchangeTemperatures
from herd.protocols.population.journal import Began, Decided, Done, journal_file, read_journal
from herd.protocols.population.messages import Applied, MemberAnswer
from herd.rpc.codec import encode
from herd.service.identity import Endpoint, Identity
from herd.transport.context import Context
from tests.bandit.test_bandit_process import Client
from tests.failpoints.child import KILLED, ORDER, RECORDED
from tests.failpoints.points import SAME, Row, rows
from tests.failpoints.promises import Durable, unseal
from tests.population.test_population_process import RATE, Member
from tests.population.test_population_process import settings_of as population_settings
from tests.replay.played_games import Row as PlayedRow
from tests.replay.played_games import play, unrolls_of
from tests.replay.test_replay_process import Learner, check, unrolls_in
from tests.replay.test_replay_process import settings_of as replay_settings
from tests.server_process import ServerProcess, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

SNAPSHOT_SECONDS = 0.02


class Served(Protocol):
    """A service and its client."""

    num_checked: int = 0
    """How many answers were compared with what was promised."""
    service: str
    settings: RunSettings
    slow: RunSettings
    """Without snapshots while it runs."""

    def connected(self, server: ServerProcess) -> None:
        """The service has started, perhaps again: check what it and its files still have, and begin to use it."""

    def step(self) -> None:
        """Do something with the service, which may die meanwhile. Does not wait for long."""

    def settle(self) -> None:
        """Wait until the service, which lives, has everything."""

    def close(self) -> None:
        """Close the connection, if there is one."""


class Killed:
    """A service that is killed at one point after the other, always with the same port and run directory."""

    def __init__(self, folder: Path, served: Served) -> None:
        self._folder, self._served = folder, served
        self._port = 0
        self._durable = Durable(served.settings.directory)

    def kill_at(self, row: Row, point: str) -> None:
        """Start the service, use it until it dies at the point, and check what it left."""
        if row.when in {"end", "after"}:
            self.end()  # it left everything on disk, which the next end must not damage
        order = self._folder / ORDER
        order.write_text(f"{point}\t1\t{row.service}")
        killed = self._folder / f"{KILLED}{row.service}-0"
        server = self.start(is_slow=row.when == "end")
        if server is not None:
            with server:
                if row.when == "end":
                    self._use()
                    server.process.send_signal(signal.SIGTERM)
                until(lambda: self._is_over(server))
                assert server.process.returncode == -signal.SIGKILL, point
        assert killed.exists(), f"the service ended before {point}"
        killed.unlink()
        self._durable.look()

    def end(self) -> None:
        """Start the service, use it, and end it in order."""
        server = self.start()
        assert server is not None
        with server:
            self._use()
            assert server.end(signal.SIGTERM) == 0

    def _is_over(self, server: ServerProcess) -> bool:
        self._served.step()
        return server.process.poll() is not None

    def _use(self) -> None:
        self._served.step()
        self._served.settle()

    def start(self, *, is_slow: bool = False) -> ServerProcess | None:
        """Start the service; None if it died before it listened."""
        through = ["tests.failpoints.child", str(self._folder), f"{self._served.service}-0"]
        identity = Identity(listen=Endpoint(port=self._port))
        settings = self._served.slow if is_slow else self._served.settings
        try:
            server = ServerProcess(self._served.service, settings, identity, through=through)
        except AssertionError:
            if not list(self._folder.glob(f"{KILLED}*")):
                raise
            return None
        self._port = server.port
        assert not [line for line in server.before if "skipped" in line]
        self._served.connected(server)
        return server

    def recorded(self) -> set[str]:
        """Return the points that were reached."""
        return {line.split("\t")[1] for line in (self._folder / RECORDED).read_text().splitlines()}


class BanditGames(Served):
    """Each game has another return, so that count and sum of the returns show which were counted, and how often."""

    service = "bandit"

    def __init__(self, run_dir: Path, context: Context) -> None:
        intervals = {"snapshot_interval_seconds": SNAPSHOT_SECONDS, "history_interval_seconds": SNAPSHOT_SECONDS}
        self.settings = self.slow = RunSettings.model_validate(
            {"name": "pong", "run_dir": run_dir, "loss": {"kind": "dice"}, "bandit": intervals}
        )
        self._context = context
        self._requests = count(1)
        self._asked: ExchangeTemperatures | None = None
        self._newest = -1
        self._client: Client | None = None
        self._after: dict[int, tuple[int, float]] = {-1: (0, 0.0)}
        """By the newest counted game: how many games are counted, and the sum of their returns."""

    def connected(self, server: ServerProcess) -> None:
        game, *counted = self._saved()
        # A state is one that the service once had, between two requests, and its newest game is never an older one.
        assert self._after[game] == tuple(counted)
        assert server.total("herd_bandit_restored_episodes") == counted[0]
        self._after = {game: self._after[game]}
        self._newest = game
        self.close()
        self._client = Client(self._context, server)

    def close(self) -> None:
        if self._client is not None:
            self._client.dealer.close()

    def step(self) -> None:
        assert self._client is not None
        # As the product's client: a request without an answer is repeated, with its number.
        self._asked = self._asked or self._next()
        [game] = self._asked.finished
        if game.episode_id > self._newest:
            games, total = self._after[self._newest]
            self._newest = game.episode_id
            self._after[self._newest] = (games + 1, total + game.episode_return)
        if self._client.dealer.send(encode(self._asked)) and self._client.dealer.wait(1.0) and self._client.dealer.receive():
            self._asked = None
            self.num_checked += 1

    def _next(self) -> ExchangeTemperatures:
        assert self._client is not None
        number = next(self._requests)
        request = self._client.exchange(number, first=number)
        [game] = request.finished
        return request.model_copy(update={"finished": (game.model_copy(update={"episode_return": float(number)}),)})

    def _saved(self) -> tuple[int, int, float]:
        """Return the newest game, the number of games and the sum of their returns in the newest state on disk."""
        for name in ("state.json", "state.previous.json"):
            if (path := self.settings.directory / "bandit" / name).exists():
                state = unseal(path)
                reports = sum(sum(bandit["reports"]) for bandit in state["bandits"])
                games = [game for client in state["clients"] for game in client["episodes"]]
                return max(games, default=-1), reports, sum(sum(bandit["return_sums"]) for bandit in state["bandits"])
        return -1, 0, 0.0


class ReplayGames(Served):
    """Games whose steps are known; drawn ones must equal them, and what was once in a snapshot must be restored."""

    service = "replay"

    def __init__(self, run_dir: Path, context: Context) -> None:
        self.settings, self.slow = replay_settings(run_dir, snapshots=SNAPSHOT_SECONDS), replay_settings(run_dir)
        self._context = context
        self._slots = count()
        self._rows: dict[int, list[PlayedRow]] = {}
        self._learner: Learner | None = None

    def connected(self, server: ServerProcess) -> None:
        self.close()
        self._learner = Learner(self._context, server)

    def settle(self) -> None:
        assert self._learner is not None
        self._learner.settle()

    def close(self) -> None:
        if self._learner is not None:
            self._learner.client.close()

    def step(self) -> None:
        assert self._learner is not None
        slot = next(self._slots)
        # The second game is not complete, so that open games must survive the end of the process, too.
        self._rows[slot] = play(self._learner.layout, [9, 30], slot)
        self._learner.insert(*unrolls_of(self._learner.layout, self._rows[slot], slot=slot)[:4])
        self._learner.client.request(3, whole_episodes=True)
        for sample in self._learner.client.poll(0.05):
            check(unrolls_in(sample), lambda _, slot: self._rows[slot], self._learner.layout)
            self.num_checked += 1


class Members(Served):
    """Members that report, receive orders and carry them out. An order that was received is in the journal, as it was received."""

    service = "population"

    def __init__(self, run_dir: Path, context: Context) -> None:
        self.settings = self.slow = population_settings(run_dir)
        self._context = context
        self._games = count(100, 100)
        self._received: dict[int, float] = {}
        self._member: Member | None = None

    def connected(self, server: ServerProcess) -> None:
        self.close()
        self._member = Member(self._context, server)
        began, *events = read_journal(journal_file(self.settings.directory))
        assert isinstance(began, Began)
        orders = {event.number: event for event in events if isinstance(event, Decided)}
        assert list(orders) == list(range(1, len(orders) + 1))
        assert {number: orders[number].settings[RATE] for number in self._received} == self._received
        done = [event.number for event in events if isinstance(event, Done)]
        assert done == sorted(set(done))

    def close(self) -> None:
        if self._member is not None:
            self._member.dealer.close()

    def step(self) -> None:
        assert self._member is not None
        report = self._member.report(0, next(self._games))
        dealer = self._member.dealer
        if not dealer.send(encode(report)) or not dealer.wait(1.0) or (frames := dealer.receive()) is None:
            return
        answer = self._member.conversation.decode(frames[0])
        assert isinstance(answer, MemberAnswer)
        if answer.order is not None:
            self.num_checked += 1
            self._received[answer.order.number] = float(str(answer.order.settings[0].value))
            Member.applied = Applied(number=answer.order.number, env_frames=report.env_frames, learner_updates=report.learner_updates)
            Member.rate = self._received[answer.order.number]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Member, "applied", None)
    monkeypatch.setattr(Member, "rate", 1e-3)
    return tmp_path


@pytest.mark.parametrize("is_all", [pytest.param(False, id="different"), pytest.param(True, id="all", marks=pytest.mark.soak)])
@pytest.mark.parametrize("make", [BanditGames, ReplayGames, Members])
def test_a_service_killed_at_any_edge_loses_nothing_that_it_promised(
    folder: Path, context: Context, make: type[BanditGames | ReplayGames | Members], is_all: bool
) -> None:
    with closing(make(folder / "run", context)) as served:
        kill_everywhere(folder, served, is_all=is_all)


def kill_everywhere(folder: Path, served: Served, *, is_all: bool) -> None:
    """Kill the service at every point of the table, then end it in order."""
    killed = Killed(folder, served)
    for row in rows(served.service, "first", "end", "after", "run", "start"):
        for edge in row.edges:
            # Announcements are also in the other test, which costs less.
            if is_all or (edge not in SAME and row.when != "start"):
                killed.kill_at(row, f"{row.kind}: {edge}")
    table = {point for row in rows(served.service) for point in row.points}
    server = killed.start()
    assert server is not None
    with server:

        def is_complete() -> bool:
            served.step()
            return killed.recorded() >= table

        until(is_complete)
        assert server.end(signal.SIGTERM) == 0
    assert killed.recorded() == table, "the table is not what processes reach"
    assert served.num_checked > 0
