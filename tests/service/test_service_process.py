"""What a service process reports about its own addresses."""

from __future__ import annotations

import pytest

from herd.config.settings import RunSettings
from herd.service.process import ServiceProcess, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_hosts_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "*", "eth0", "learner-0.cluster"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_server_open_to_the_network_without_keys_warns(capsys: pytest.CaptureFixture[str], host: str, warns: bool) -> None:
    settings = RunSettings.model_validate({"name": "run", "paramserver": {"host": host}})
    with ServiceProcess("paramserver", settings) as process:
        process.telemetry.set_ready(True)
        answer = process.telemetry._readyz()
    assert answer.status == 200
    said = capsys.readouterr()
    assert ("open to the network without keys" in said.out + said.err) is warns
    assert (b"warning: paramserver.host 0.0.0.0 is open to the network" in answer.body) is warns


def test_an_actor_does_not_warn_about_open_ports() -> None:
    with ServiceProcess("actor", RunSettings(name="run")) as process:
        assert b"warning" not in process.telemetry._readyz().body
