"""The table of services agrees with settings, packages and folders."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from herd.config.addresses import ServerName, ServiceName
from herd.config.encryption_keys import EVERY_ROLE
from herd.config.run import RunSettings
from herd.service.identity import Identity, component_of
from herd.topology import COMPONENTS, PARAMSERVER, SERVERS, SERVICE_NAMES, SERVICES

ROOT = Path(__file__).parents[2]


def test_every_service_has_a_package_and_a_settings_section() -> None:
    assert (
        set(SERVICE_NAMES) == set(get_args(ServiceName)) == {path.parent.parent.name for path in ROOT.glob("services/*/herd_*/__main__.py")}
    )
    assert {service.section for service in SERVICES} <= set(RunSettings.model_fields)


def test_every_service_is_in_the_wheel_mypy_and_import_contracts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = project["tool"]
    assert {f"services/{name}/herd_{name}" for name in SERVICE_NAMES} < set(tools["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert {f"herd_{name}" for name in SERVICE_NAMES} <= set(tools["mypy"]["packages"]) & set(tools["importlinter"]["root_packages"])
    (torchless,) = (
        each["source_modules"]
        for each in tools["importlinter"]["contracts"]
        if "torch" in each.get("forbidden_modules", ()) and "herd_bandit" in each["source_modules"]
    )
    assert {each.module for each in SERVICES if not each.has_torch} == {name for name in torchless if not name.startswith("herd.")}
    assert {each.packages for each in SERVICES} - {""} <= set(project["project"]["optional-dependencies"])


def test_servers_start_before_the_components_that_connect() -> None:
    started: dict[str, str] = {}
    for component in COMPONENTS:
        for asks in component.asks:
            assert {started[name] for name in asks.components} == {asks.service}
        started[component.name] = component.service.name
    assert {service.name for service in SERVERS} == set(get_args(ServerName))


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
    assert counts(replay={"kind": "local"}, replay_service={"replicas": 2}, actor={"environments": 4})["replay"] == 0
    assert counts(paramserver={"replicas": 3}, learner={"shards": 2})["paramserver-replica"] == 3


def test_key_roles_follow_the_connections() -> None:
    roles = {service.name: component_of(service, Identity()).roles for service in SERVICES}
    servers = dict.fromkeys(("bandit", "paramserver", "population", "replay"), ("server",))
    assert roles == {"actor": ("client",), "evaluator": ("client",), "inference": EVERY_ROLE, "learner": EVERY_ROLE, **servers}
    assert component_of(PARAMSERVER, Identity(addresses={"paramserver": ("tcp://root:7200",)})).roles == EVERY_ROLE


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
