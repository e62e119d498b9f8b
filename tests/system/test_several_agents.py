"""Two agents in one run: two learners, one parameter server, and actors that serve both and move when one ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from herd.telemetry.scrape import Samples, scrape
from tests.system.three_services import address
from tests.system.whole_runs import CATCH, Process, free_ports, read_points, read_report, until


class TwoAgents:
    """The services of a run with two agents, started one by one."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.root, self.root_metrics, *self._unrolls = free_ports(4)
        self._children = ExitStack()
        self.all: list[Process] = []

    def start(self, service: str, name: str, *words: str) -> Process:
        settings = {
            "agents": 2,
            "actor.learner": ",".join(map(address, self._unrolls)),
            "actor.paramserver": address(self.root),
            "learner.paramserver": address(self.root),
            "learner.threads": 1,
            "learner.log_interval_seconds": 0.2,
            "paramserver.port": self.root,
            "paramserver.metrics_port": self.root_metrics,
            "paramserver.index_lease_seconds": 3.0,
            "stop.env_frames": "null",
        }
        at = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        output = self.run_dir.with_name(f"{name}.out")
        process = Process(output, f"herd_{service}", "--config", CATCH, "--run_dir", self.run_dir, *at, *words)
        self.all.append(self._children.enter_context(process))
        return process

    def learner(self, agent: int, *words: str) -> Process:
        port = str(self._unrolls[agent])
        return self.start("learner", f"learner-{agent}", "--learner.agent", str(agent), "--learner.port", port, *words)

    def directory(self, agent: int) -> Path:
        return self.run_dir / "agents" / str(agent)

    def env_frames(self, agent: int) -> int:
        return int(([{"env_frames": 0}, *read_points(self.directory(agent))])[-1]["env_frames"])

    def metrics(self) -> Samples:
        """The root's."""
        return scrape(f"http://127.0.0.1:{self.root_metrics}/metrics")

    def holders(self) -> list[float]:
        """Actors by agent."""
        samples = self.metrics()
        return [samples["herd_paramserver_agent_leased_indices", (("agent", str(agent)),)] for agent in range(2)]

    def close(self) -> None:
        self._children.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TwoAgents]:
    made = TwoAgents(tmp_path / "run")
    yield made
    made.close()


def test_actors_serve_both_agents_and_move_to_the_one_that_is_left(run: TwoAgents) -> None:
    run.start("paramserver", "paramserver")
    first, second = run.learner(0, "--stop.env_frames", "20000"), run.learner(1)
    actors = [run.start("actor", f"actor-{number}") for number in range(2)]
    until(lambda: run.env_frames(0) > 0 and run.env_frames(1) > 0, "both agents to learn")
    assert first.wait() == 0, first.output
    report = read_report(run.directory(0))
    assert report["env_frames"] >= 20_000
    until(lambda: run.holders() == [0, 2], "both actors to act for the agent that is left")
    frames = run.env_frames(1)
    until(lambda: run.env_frames(1) > frames + 20_000, "that agent to learn from them")
    assert all(actor.is_running() for actor in actors)
    # Resumed, it gets an actor back.
    again = run.learner(0, "--resume", "true")
    until(lambda: run.holders() == [1, 1], "an actor for each")
    until(lambda: run.env_frames(0) > 30_000, "the resumed agent to learn")
    for process in (*actors, again, second):
        assert process.stop(signal.SIGTERM) == 0, process.output
        assert "Traceback" not in process.output
    assert set(read_report(run.directory(1))["accounting"]["dropped"]) <= {"stale"}
    for agent in range(2):
        read_report(run.directory(agent))
