"""The inference service as a process: killed, restarted and replaced while its actors play."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from herd.agent import Agent
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.protocols.inference.client import Answer, InferenceClient
from herd.protocols.weights.client import WeightsPublisher
from herd.run.tensors import encode_weights
from herd.service.identity import Endpoint, Identity
from herd.telemetry.scrape import page
from herd.transport.context import Context
from tests.inference.serving import remote_policy
from tests.inference.test_inference_equality import CASES, Both, peaked_agent
from tests.server_process import ANSWER_SECONDS, ServerProcess, until

pytestmark = pytest.mark.processes

CASE = "two planes, recurrent, instructed"


def settings_of(run_dir: Path, **sections: object) -> RunSettings:
    return RunSettings.model_validate(
        {
            "name": "acting",
            "run_dir": run_dir,
            "actor": {"environments": 5, "inference": "remote"},
            "inference": {"precision": "float32"},
            **CASES[CASE],
        }
        | sections
    )


class Run:
    """A parameter server with weights of one agent, and the inference services that a test starts."""

    def __init__(self, settings: RunSettings, root: ServerProcess, publisher: WeightsPublisher, agent: Agent) -> None:
        self.settings = settings
        self.root = root
        self.publisher = publisher
        self.agent = agent

    def publish(self, updates: int) -> None:
        payload = encode_weights(self.agent.state_dict())
        self.publisher.publish(1, updates, 0, 1, payload)

        def is_confirmed() -> bool:
            self.publisher.poll()
            return self.publisher.confirmed

        until(is_confirmed)

    def service(self, port: int = 0, settings: RunSettings | None = None) -> ServerProcess:
        identity = Identity(listen=Endpoint(port=port), addresses={"paramserver": (self.root.endpoint,)})
        return ServerProcess("inference", self.settings if settings is None else settings, identity)


@contextmanager
def a_run(run_dir: Path, context: Context, **sections: object) -> Iterator[Run]:
    settings = settings_of(run_dir, **sections)
    with ServerProcess("paramserver", settings) as root:
        publisher = WeightsPublisher(context, root.endpoint, run_id=settings.name, contract=root.contract)
        with closing(publisher):
            yield Run(settings, root, publisher, peaked_agent(settings))


def client_of(context: Context, server: ServerProcess, num_environments: int) -> InferenceClient:
    settings = server.settings
    return InferenceClient(
        context,
        server.endpoint,
        layout=run_layout(settings, environment_spec(settings.env)),
        run_id=settings.name,
        agent=0,
        contract=server.contract,
        actor_index=0,
        incarnation=5,
        group=0,
        num_environments=num_environments,
    )


def play(group: Both, num_rows: int) -> None:
    for _ in range(num_rows):
        group.ask()
        group.step()


def test_games_continue_across_kills_and_stops_of_the_service(tmp_path: Path) -> None:
    """Before and after, each answer is that of a policy in the actor; no row is lost, and none is played twice."""
    with Context() as context, a_run(tmp_path, context) as run:
        run.publish(7)
        with (
            run.service() as server,
            closing(client_of(context, server, 3)) as client,
        ):
            answers: list[Answer] = []
            group = Both(run.settings, run.agent, remote_policy(client, answers), range(3))
            play(group, 5)
            assert answers[-1].version == (1, 7)
            server.process.send_signal(signal.SIGSTOP)
            group.ask()  # the service is killed before it answers
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            with run.service(server.port) as second:
                group.step()
                play(group, 5)
                assert client.num_states_sent >= 2
                until(lambda: second.total("herd_inference_agent_steps_total") == 18)  # a batch is counted after its answers are sent
                assert second.end(signal.SIGTERM) == 0
            with run.service(server.port) as third:
                play(group, 5)
                run.publish(8)
                until(lambda: third.total("herd_weights_updates") == 8)
                play(group, 1)
                assert answers[-1].version == (1, 8)
                assert third.total("herd_inference_requests_total", outcome="new") == 6
                assert third.total("herd_wire_refused_messages_total") == 0
            assert client.num_states_sent >= 3


def test_requests_wait_until_weights_arrive(tmp_path: Path) -> None:
    with Context() as context, a_run(tmp_path, context) as run, ExitStack() as stack:
        server = stack.enter_context(run.service())
        client = stack.enter_context(closing(client_of(context, server, 2)))
        readiness = f"http://127.0.0.1:{server.metrics_port}/readyz"
        group = Both(run.settings, run.agent, remote_policy(client), range(2))
        group.ask()
        until(lambda: client.poll() is None and server.total("herd_inference_pending_requests") == 1)
        assert not page(readiness)
        run.publish(1)
        group.step()
        until(lambda: page(readiness))


def test_an_actor_waiting_for_the_service_can_be_stopped(tmp_path: Path) -> None:
    """No process listens at any of the addresses, and the actor still ends cleanly."""
    with ExitStack() as held:
        addresses = []
        for _ in range(3):  # bound but not listening: no other process can take the port
            reserved = held.enter_context(socket.socket())
            reserved.bind(("127.0.0.1", 0))
            addresses.append(f"tcp://127.0.0.1:{reserved.getsockname()[1]}")
        learner, paramserver, inference = addresses
        config = tmp_path / "config.yaml"
        config.write_text("env: {suite: catch}\nnetwork: {torso: mlp}\n")
        words = ["--actor.inference", "remote", "--actor.inference_timeout_seconds", "0.05"]
        words += ["--index", "0", "--learner", learner, "--paramserver", paramserver, "--inference", inference]
        command = [sys.executable, "-m", "herd_actor", "--config", str(config), "--run_dir", str(tmp_path / "run"), *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as actor:
            assert actor.stderr is not None
            try:
                assert any("the inference service does not answer" in line for line in actor.stderr)
            finally:
                actor.send_signal(signal.SIGTERM)
            assert actor.wait(ANSWER_SECONDS) == 0


def test_a_missing_gpu_gives_one_line_and_exit_code_2(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    config = tmp_path / "config.yaml"
    config.write_text("env: {suite: catch}\nnetwork: {torso: mlp}\nactor: {inference: remote, count: 1}\n")
    command = [sys.executable, "-m", "herd_inference", "--config", str(config), "--run_dir", str(tmp_path / "run")]
    command += ["--paramserver", "tcp://127.0.0.1:1"]
    command += ["--inference.device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("inference: ")]
    assert "inference.device cuda: torch finds no GPU here" in line
