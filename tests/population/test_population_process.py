"""The controller from outside, with real sockets over loopback, real signals and a disk that really fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.protocols.population.journal import Decided, Done, journal_file, read_journal
from herd.protocols.population.messages import POPULATION, Applied, Declined, MemberAnswer, MemberReport, Order, OwnSetting
from herd.rpc.envelope import Refused
from herd.transport.context import Context
from tests.failing_disks import no_space_beyond
from tests.patience import patient
from tests.server_process import ANSWER_SECONDS, AskingClient, ServerProcess, connecting, until

pytestmark = pytest.mark.processes

RATE = "optimizer.learning_rate"


def settings_of(run_dir: Path, **changes: Any) -> RunSettings:
    """Three members; every decision changes the learning rate."""
    population = {
        "strategy": "pbt",
        "fitness": "episode_return",
        "fitness_episodes": 10,
        "burn_in_env_frames": 0,
        "perturb_probability": 1.0,
    }
    sweep = {RATE: {"draw": "log_uniform", "low": 1e-4, "high": 1e-2}}
    return RunSettings.model_validate(
        {"name": "pong", "run_dir": run_dir, "agents": 3, "sweep": sweep, "population": population, **changes}
    )


class Server(ServerProcess):
    def __init__(self, run_dir: Path) -> None:
        super().__init__("population", settings_of(run_dir))

    def events(self) -> list[Any]:
        return list(read_journal(journal_file(self.settings.directory)))


class Member(AskingClient):
    conversation = POPULATION

    """A member whose reports are sent by hand."""

    applied: Applied | None = None
    declined: Declined | None = None
    rate = 1e-3

    def report(self, agent: int, games: int, fitness: float = 0.0, **changes: Any) -> MemberReport:
        fields: dict[str, Any] = {
            "id": games,
            "run": "pong",
            "agent": agent,
            "contract": self.server.contract,
            "env_frames": 100 * games,
            "learner_updates": games,
            "num_episodes": games,
            "fitness": fitness,
            "checkpoint": (games, 100 * games),
            "settings": (OwnSetting(key=RATE, value=self.rate),),
            "applied": self.applied,
            "declined": self.declined,
        }
        return MemberReport(**fields | changes)

    def order(self, agent: int, games: int, fitness: float = 0.0) -> Order | None:
        answer = self.ask(self.report(agent, games, fitness))
        assert isinstance(answer, MemberAnswer)
        return answer.order


Connect = Callable[[Server], Member]


@pytest.fixture
def connect(context: Context) -> Iterator[Connect]:
    with connecting(Member, context) as connect:
        yield connect


def test_decisions_survive_a_kill_and_are_not_made_again(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "run") as first:
        member = connect(first)
        for agent in (1, 2):
            assert member.order(agent, 5, fitness=0.9) is None
        order = member.order(0, 20)
        assert order is not None
        assert order.copied is not None
        assert order.copied.donor in {1, 2}
        assert order.copied.learner_updates == 5
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with Server(tmp_path / "run") as second:
        member = connect(second)
        assert member.order(0, 40) == order  # the same order: later reports of other members do not change it
        member.applied = Applied(number=order.number, env_frames=2000, learner_updates=20)
        assert member.order(0, 45) is None
        began, decided, done = second.events()
        assert [settings[RATE] for settings in began.members] == [
            second.settings.of_agent(agent).optimizer.learning_rate for agent in range(3)
        ]
        assert isinstance(decided, Decided)
        assert done == Done(number=order.number, member=0, env_frames=2000, learner_updates=20)
        assert second.end(signal.SIGTERM) == 0
    with Server(tmp_path / "run") as third:
        member = connect(third)
        member.applied = Applied(number=order.number, env_frames=2000, learner_updates=20)
        assert member.order(0, 25) is None  # ten games are needed after the decision, which was made at 20
        assert third.events() == [began, decided, done]
        again = member.order(0, 30)
        assert again is not None
        assert again.number == order.number + 1


def test_no_decision_is_made_while_the_disk_is_full(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "run") as server:
        member = connect(server)
        size = journal_file(server.settings.directory).stat().st_size
        with no_space_beyond(size + 10, server.process.pid):
            assert member.order(0, 20) is None
            assert member.order(0, 21) is None
            assert server.total("herd_population_file_failures_total") == 2
            assert len(server.events()) == 1
        order = member.order(0, 22)
        assert order is not None
        assert order.number == 1
        assert server.total("herd_population_decisions_total", outcome="perturbed") == 1


def test_invalid_and_foreign_reports_are_refused(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "run") as server:
        member = connect(server)
        report = member.report(0, 20)
        for changes, said in (
            ({"run": "breakout"}, "belongs to run pong, not breakout"),
            ({"contract": "c"}, "does not match"),
            ({"agent": 3}, "serves agents 0 to 2, not 3"),
            ({"applied": Applied(number=2**63 - 1, env_frames=0, learner_updates=0)}, "carried out order 9223372036854775807"),
            ({"settings": (OwnSetting(key=RATE, value=-1.0),)}, "not of this run's sweep"),
            ({"settings": (OwnSetting(key="loss.kind", value="dice"), OwnSetting(key=RATE, value=1e-3))}, "not of this run's sweep"),
        ):
            answer = member.ask(report.model_copy(update=changes))
            assert isinstance(answer, Refused)
            assert said in answer.reason
        member.send(b"\xc1")
        assert member.ask(report) is not None
        until(lambda: server.total("herd_wire_malformed_messages_total") >= 1)
        assert server.total("herd_wire_refused_messages_total") == 6
        assert len(server.events()) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {
                "population": {"strategy": "pbt", "fitness": "human_normalised"},
                "env": {"suite": "catch", "tasks": ["catch"]},
                "network": {"torso": "mlp"},
            },
            "there are no human scores for catch",
        ),
        ({"seed": 2}, "belongs to another run or sweep"),
    ],
)
def test_unusable_settings_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with Server(tmp_path / "run") as server:
        assert server.end(signal.SIGTERM) == 0
    config = tmp_path / "other.yaml"
    config.write_text(dump_settings(settings_of(tmp_path / "run", **changes)))
    done = subprocess.run(
        [sys.executable, "-m", "herd_population", "--config", config],
        capture_output=True,
        text=True,
        timeout=patient(ANSWER_SECONDS),
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
