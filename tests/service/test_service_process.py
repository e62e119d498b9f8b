"""What a service process reports about its own addresses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from herd.config.run import RunSettings
from herd.service.identity import Endpoint, Identity
from herd.service.process import ServiceProcess, is_loopback
from herd.telemetry import Telemetry

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName


def test_loopback_hosts_are_recognised() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.7", "*", "eth0", "learner-0.cluster")))


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_server_open_to_the_network_without_keys_warns(capsys: pytest.CaptureFixture[str], host: str, warns: bool) -> None:
    with ServiceProcess("paramserver", RunSettings(name="run"), Identity(listen=Endpoint(host))) as process:
        process.telemetry.set_ready(True)
        answer = process.telemetry._readyz()
    assert answer.status == 200
    said = capsys.readouterr()
    assert ("open to the network without keys" in said.out + said.err) is warns
    assert (b"warning: paramserver listens on 0.0.0.0, which is open to the network" in answer.body) is warns


@pytest.mark.parametrize(("service", "suite", "seconds"), [("actor", "dmlab", 660), ("learner", "dmlab", 60), ("actor", "atari", 60)])
def test_a_process_that_waits_for_a_slow_level_counts_as_alive(service: ServiceName, suite: str, seconds: float) -> None:
    now = 0.0
    with mock.patch("herd.service.process.Telemetry", partial(Telemetry, clock=lambda: now)):
        process = ServiceProcess(service, RunSettings.model_validate({"name": "run", "env": {"suite": suite}}), Identity())
    with process:
        now = seconds
        assert process.telemetry.alive()
        assert b"\nherd_process_heartbeat_age_ratio 1.0\n" in process.telemetry.exposition()
        now = seconds + 1
        assert not process.telemetry.alive()


def test_an_actor_does_not_warn_about_open_ports() -> None:
    with ServiceProcess("actor", RunSettings(name="run"), Identity(listen=Endpoint("*"))) as process:
        assert b"warning" not in process.telemetry._readyz().body
