"""Catch through a tree of parameter servers: actors see replicas only; root and replica are killed."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path

from herd.config.contract import contract_digest
from herd.config.curve_keys import RUN_TOKEN_VARIABLE
from herd.config.loading import load_settings
from herd.envs.make import environment_spec
from herd.supervisor.readings import metrics_url
from herd.telemetry.scrape import ScrapeError, scrape, total
from herd.wire.sockets import new_context
from herd.wire.weights_client import Version, WeightsClient
from tests.system.whole_runs import Run, herd, pid_of, read_points, read_report

SERVERS = ("paramserver-0", "paramserver-1", "paramserver-2")


class Onlooker:
    """Asks one parameter server for whatever it has, as an actor does that has just started."""

    def __init__(self, run: Run, server: str) -> None:
        log = run.run_dir / "logs" / f"{server}.log"
        run.until(lambda: log.is_file() and "endpoint=" in log.read_text(), f"the address of {server}")
        match = re.search(r"endpoint=(tcp://\S+)", log.read_text())
        assert match is not None
        settings = load_settings([run.run_dir / "config.yaml"], [], {})
        self._context = new_context(environ={RUN_TOKEN_VARIABLE: (run.run_dir / "token").read_text().strip()})
        contract = contract_digest(settings, environment_spec(settings.env))
        self._client = WeightsClient(self._context, match.group(1), run_id=settings.name, contract=contract)
        self.newest: Version = (0, 0)

    def look(self) -> Version:
        """The newest version it has seen, after asking once more."""
        self._client.request(None)
        frame = self._client.poll(0.05)
        assert self._client.refused is None
        if frame is not None:
            assert frame.version >= self.newest, "versions went back"
            self.newest = frame.version
        return self.newest

    def close(self) -> None:
        self._client.close()
        self._context.term()


def metric(run: Run, process: str, name: str) -> float:
    """0 while it does not answer."""
    url = metrics_url(run.run_dir, process, pid_of(run.run_dir, process))
    try:
        return total(scrape(url, 5.0), name) if url is not None else 0.0
    except ScrapeError:
        return 0.0


def has_weights(run: Run, actor: str) -> bool:
    return metric(run, actor, "herd_weights_updates") > 0


def test_learning_goes_on_through_a_tree_whose_root_and_replica_are_killed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    actors = ("--actor.count", "2", "--actor.environments", "16")
    with Run(run_dir, "--paramserver.replicas", "2", *actors, "--learner.log_interval_seconds", "0.5") as run:
        onlookers = [Onlooker(run, server) for server in SERVERS]
        try:
            run.until(lambda: min(onlooker.look() for onlooker in onlookers) >= (1, 20), "20 updates at every node")
            # Each actor asks its own replica; the root hears of the learner and of its replicas.
            for number in range(2):
                run.until(partial(has_weights, run, f"actor-{number}"), "weights at an actor")
                assert metric(run, f"paramserver-{number + 1}", "herd_paramserver_upstream_answers_total") > 0
            assert metric(run, "paramserver-1", "herd_paramserver_stale_publishes_total") == 0
            for server in ("paramserver-0", "paramserver-2"):
                pid, version, frames = pid_of(run_dir, server), max(onlooker.look() for onlooker in onlookers), run.env_frames()
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                run.until_replaced(server, pid)

                def goes_on(version: Version = version, frames: int = frames) -> bool:
                    """Every node serves what was learned after the fault, and learning goes on from it."""
                    return all(onlooker.look() > version for onlooker in onlookers) and run.env_frames() > frames + 20_000

                run.until(goes_on, f"training after {server} was killed")
                assert f"{server} ended (SIGKILL)" in run.output
            status = herd("status", run_dir, "--json")
            assert all(f'"{server}": "ready"' in status.stdout for server in SERVERS), status.stdout
            assert run.stop() == 0, run.output
        finally:
            for onlooker in onlookers:
                onlooker.close()
    assert run.output.count("ended (") == 2  # nobody else fell over
    report = read_report(run_dir)
    assert set(report["accounting"]["dropped"]) <= {"learner_restart"}
    assert [point["learner_updates"] for point in read_points(run_dir)] == sorted(
        point["learner_updates"] for point in read_points(run_dir)
    )
