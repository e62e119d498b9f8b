"""The table of services agrees with settings, packages and folders."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from herd.config.curve_keys import EVERY_ROLE
from herd.config.settings import RunSettings
from herd.topology import COMPONENTS, SERVICE_NAMES, SERVICES, Service, ServiceName, component_of

ROOT = Path(__file__).parents[2]


def test_every_service_has_a_package_and_a_settings_section() -> None:
    assert (
        set(SERVICE_NAMES) == set(get_args(ServiceName)) == {path.parent.parent.name for path in ROOT.glob("services/*/herd_*/__main__.py")}
    )
    sections = {name for name, value in RunSettings() if hasattr(value, "metrics_port")}
    assert sections == {service.section for service in SERVICES}


def test_every_service_is_in_the_wheel_mypy_and_import_contracts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = project["tool"]
    assert {f"services/{name}/herd_{name}" for name in SERVICE_NAMES} < set(tools["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert {f"herd_{name}" for name in SERVICE_NAMES} <= set(tools["mypy"]["packages"]) & set(tools["importlinter"]["root_packages"])
    without_torch = (each for each in tools["importlinter"]["contracts"] if "torch" in each.get("forbidden_modules", ()))
    torchless = {name for contract in without_torch for name in contract["source_modules"] if not name.startswith("herd.")}
    assert {each.module for each in SERVICES if not each.has_torch} == torchless
    assert {each.packages for each in SERVICES} - {""} <= set(project["project"]["optional-dependencies"])


@pytest.mark.parametrize("service", SERVICES)
def test_servers_have_a_port_in_the_table_and_in_the_settings(service: Service) -> None:
    section = getattr(RunSettings(), service.section)
    assert getattr(section, "port", None) == (None if service.port is None else 0)
    assert hasattr(section, "host") is (service.port is not None)


def test_default_addresses_name_the_ports_of_the_table() -> None:
    """Settings' ports are free ones, so only addresses and containers use those of the table."""
    for component in COMPONENTS:
        for asks in component.asks:
            default = getattr(getattr(RunSettings(), component.service.section), asks.setting)
            addresses = {default} if isinstance(default, str) else set(default or ())  # a parameter server has no parent
            ports = {each.service.port for each in COMPONENTS if each.name in asks.components}
            assert {int(address.rpartition(":")[2]) for address in addresses} == (ports if addresses else set())


def test_servers_start_before_the_components_that_connect() -> None:
    started: dict[str, int | None] = {}
    for component in COMPONENTS:
        for asks in component.asks:
            assert hasattr(getattr(RunSettings(), component.service.section), asks.setting)
            assert all(started[name] is not None for name in asks.components)
        started[component.name] = component.service.port


def test_the_number_of_each_component_follows_the_settings() -> None:
    def counts(**sections: object) -> dict[str, int]:
        settings = RunSettings.model_validate(sections)
        return {component.name: component.count(settings) for component in COMPONENTS}

    assert counts() == {
        "paramserver": 1,
        "paramserver-replica": 0,
        "bandit": 0,
        "replay": 0,
        "population": 0,
        "inference": 0,
        "learner": 1,
        "actor": 2,
        "evaluator": 0,
    }
    pbt = {"population": {"strategy": "pbt"}, "agents": 2, "sweep": {"loss.entropy_cost": [0.1, 0.01]}}
    assert (counts(**pbt)["population"], counts(**pbt)["learner"]) == (1, 2)
    assert counts(evaluation={"interval_seconds": 60.0})["evaluator"] == 1
    assert counts(inference={"replicas": 2})["inference"] == 0
    assert counts(inference={"replicas": 2}, actor={"inference": "remote"})["inference"] == 2
    dice = {"loss": {"kind": "dice"}}
    assert counts(**dice)["bandit"] == 1
    assert counts(**dice | {"loss": {"kind": "dice", "ablation": "baseline"}})["bandit"] == 0
    assert counts(replay={"kind": "shared"}, replay_service={"replicas": 2}, actor={"environments": 4})["replay"] == 2
    assert counts(replay={"kind": "uniform"}, replay_service={"replicas": 2}, actor={"environments": 4})["replay"] == 0
    assert counts(paramserver={"replicas": 3}, learner={"shards": 2})["paramserver-replica"] == 3


def test_key_roles_follow_the_connections() -> None:
    replica = RunSettings.model_validate({"paramserver": {"upstream": "tcp://root:7200"}})
    roles = {name: component_of(name, RunSettings()).roles for name in SERVICE_NAMES}
    servers = dict.fromkeys(("bandit", "paramserver", "population", "replay"), ("server",))
    assert roles == {"actor": ("client",), "evaluator": ("client",), "inference": EVERY_ROLE, "learner": EVERY_ROLE, **servers}
    assert component_of("paramserver", replica).roles == EVERY_ROLE
    assert component_of("learner", replica).roles == EVERY_ROLE


@pytest.mark.processes
def test_importing_the_topology_loads_nothing_heavy() -> None:
    code = "import sys, herd.topology; print(sorted({'pydantic', 'zmq', 'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.processes
def test_services_without_weights_import_neither_torch_nor_emulators() -> None:
    code = (
        "import sys, herd_bandit.server, herd_paramserver.server, herd_population.server, herd_replay.server\n"
        "print(sorted({'torch', 'ale_py', 'gymnasium', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
