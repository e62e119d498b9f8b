"""The bandit process from outside, with real sockets over loopback and real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from herd.components.losses.dice import DiceSettings
from herd.config.run import RunSettings, SecuritySettings
from herd.config.services import BanditSettings
from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures, FinishedEpisode, StartingEpisode, Temperatures
from herd.service.identity import Endpoint, Identity
from herd.telemetry.scrape import page, total
from herd.transport.context import Context
from tests.patience import patient
from tests.server_process import AskingClient, ServerProcess, connecting, until

pytestmark = pytest.mark.processes

SLOW_SECONDS = patient(60.0)
"""Snapshot interval for tests that want no snapshot."""


class Server(ServerProcess):
    def __init__(self, run_dir: Path, *, port: int = 0, snapshots: float = SLOW_SECONDS, keys: Path | None = None) -> None:
        bandit = BanditSettings(snapshot_interval_seconds=snapshots, history_interval_seconds=snapshots)
        security = SecuritySettings(curve_keys=keys)
        settings = RunSettings(name="pong", run_dir=run_dir, bandit=bandit, loss=DiceSettings(), security=security)
        super().__init__("bandit", settings, Identity(listen=Endpoint(port=port)))

    @property
    def directory(self) -> Path:
        return self.settings.directory / "bandit"


class Client(AskingClient):
    conversation = BANDIT

    """A client that can also send the bandit's one request."""

    def exchange(self, request_id: int, games: int = 1, *, first: int = 0, run_id: str = "pong") -> ExchangeTemperatures:
        """Report that games ``first`` and following of slot 0 ended with return 2.0 at 1/tau = 5, and ask for the next game."""
        return ExchangeTemperatures(
            id=request_id,
            run=run_id,
            contract=self.server.contract,
            agent=0,
            client="99",
            purpose="training",
            finished=tuple(
                FinishedEpisode(
                    task_id=0,
                    environment_slot=0,
                    episode_id=first + game,
                    inverse_temperature=5.0,
                    episode_return=2.0,
                    agent_steps=10,
                    reused=False,
                )
                for game in range(games)
            ),
            starting=(StartingEpisode(task_id=0, environment_slot=0, episode_id=first + games),),
        )


Connect = Callable[[Server], Client]


@pytest.fixture
def connect(context: Context) -> Iterator[Connect]:
    with connecting(Client, context) as connect:
        yield connect


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "run") as started:
        yield started


def test_the_process_answers_and_exports_metrics(server: Server, connect: Connect) -> None:
    client = connect(server)
    answer = client.ask(client.exchange(1, games=3))
    assert isinstance(answer, Temperatures)
    [handed] = answer.handed
    assert (handed.environment_slot, handed.episode_id) == (0, 3)
    assert 0.0 <= handed.inverse_temperature <= 50.0
    assert client.ask(client.exchange(1, games=3)) == answer
    samples = server.metrics()
    where = {"agent": "0", "task": "breakout"}
    assert total(samples, "herd_bandit_reports_total", outcome="accepted") == 3
    assert total(samples, "herd_bandit_reports_total", outcome="duplicate") == 3
    assert total(samples, "herd_bandit_requests_total", outcome="new") == 1
    assert total(samples, "herd_bandit_requests_total", outcome="repeated") == 1
    assert total(samples, "herd_bandit_inverse_temperature_count", **where) == 1
    assert total(samples, "herd_bandit_inverse_temperature_sum", **where) == pytest.approx(handed.inverse_temperature)
    assert 0 < total(samples, "herd_bandit_tile_value", tile="17", **where) < 2.0  # log(1 + 5) = 1.79
    assert total(samples, "herd_bandit_restored_episodes") == 0
    assert total(samples, "herd_wire_request_bytes_total") > total(samples, "herd_wire_answer_bytes_total") > 100
    assert not [name for name, _ in samples if name.startswith("herd_weights")]
    for name in ("healthz", "readyz"):
        assert page(f"http://127.0.0.1:{server.metrics_port}/{name}")
    announced = json.loads((server.settings.directory / "processes" / "bandit-0.json").read_text())
    assert announced == {"pid": server.process.pid, "metrics_host": "127.0.0.1", "metrics_port": server.metrics_port}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_state_and_history(tmp_path: Path, connect: Connect, number: int) -> None:
    with Server(tmp_path / "run") as first:
        client = connect(first)
        client.ask(client.exchange(1, games=7))
        assert first.end(number) == 0
        [record] = [json.loads(line) for line in (first.directory / "history.jsonl").read_text().splitlines()]
        assert (record["task"], record["episodes"], record["env_frames"]) == ("breakout", 7, 280)
    with Server(tmp_path / "run") as second:
        assert second.total("herd_bandit_restored_episodes") == 7
        assert second.before == []


def test_after_sigkill_the_last_snapshot_is_restored_without_recounts(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "run", snapshots=0.05) as first:
        client = connect(first)
        client.ask(client.exchange(1, games=5))
        written = first.total("herd_bandit_snapshots_written_total")
        # Wait for two more: the first may have begun before the reports arrived.
        until(lambda: first.total("herd_bandit_snapshots_written_total") >= written + 2)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with Server(tmp_path / "run", port=first.port) as second:
        assert second.total("herd_bandit_restored_episodes") == 5
        client = connect(second)
        # The client behaves as if its answer had been lost with the process.
        assert isinstance(client.ask(client.exchange(1, games=5)), Temperatures)
        assert second.total("herd_bandit_reports_total", outcome="duplicate") == 5
        client.ask(client.exchange(2, games=2, first=4))
        assert second.total("herd_bandit_reports_total", outcome="duplicate") == 6
        assert second.total("herd_bandit_reports_total", outcome="accepted") == 1


def test_a_state_of_other_settings_gives_one_line_and_exit_code_2(server: Server) -> None:
    server.end(signal.SIGTERM)  # the state is saved on SIGTERM
    words = ["--run_dir", str(server.settings.directory), "--bandit.tile_accuracy", "0.2"]
    done = subprocess.run([sys.executable, "-m", "herd_bandit", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "made with other bandit.bandits" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
