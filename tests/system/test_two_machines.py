"""The commands of docs/two-machines.md, with a folder for each machine, and the contents of its Compose file."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from herd.config.run import RunSettings
from herd.launch.placement import placement
from herd.service.startup import read_command_line
from herd.topology import METRICS_PORT, SERVICES, Service, service_of
from tests.images import dockerfiles
from tests.observability.prometheus_server import tool
from tests.own_hosts import on_own_hosts
from tests.patience import patient
from tests.system.whole_runs import CATCH, ROOT, SECONDS, environment, free_ports, read_report, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.service.identity import Identity

pytestmark = pytest.mark.processes

PAGE = (ROOT / "docs" / "two-machines.md").read_text()
COMPOSE = ROOT / "compose"
PROGRAMS: dict[str, Service] = {service.name: service for service in SERVICES}
MEMBERS = ("learner-1", "learner-2", "learner-3")
"""The learners of a population, except the first."""
ALWAYS = {"paramserver", "learner", "actor"}


def blocks(title: str) -> list[str]:
    """The page's code blocks that begin with this comment, without the comment."""
    return re.findall(rf"```sh\n# {title}\n(.*?)```", PAGE, re.DOTALL)


class Machine:
    """A folder that stands for a machine. Use as a context manager, which ends its processes."""

    def __init__(self, folder: Path, replaced: dict[str, str]) -> None:
        self.folder = folder
        self._replaced = replaced
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        shutil.copy(ROOT / CATCH, folder / "catch.yaml")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def start(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of the page, with its addresses and ports replaced."""
        for old, new in self._replaced.items():
            command = command.replace(old, new)
        environ = environment()
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        assigned, rest = re.fullmatch(r"((?:[A-Z_]+=\S+\s+(?:\\\n\s*)?)*)(.*)", command.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
        line = f"{assigned} exec {rest} {shlex.join(words)}".replace("\\\n", " ")
        with (self.folder / f"{len(self._processes)}.out").open("w") as output:
            process = subprocess.Popen(["bash", "-c", line], cwd=self.folder, env=environ, stdout=output, stderr=subprocess.STDOUT)
        self._processes.append(process)
        return process

    def said(self) -> str:
        """The output of all processes of the machine."""
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("*.out")))


def test_the_documented_commands_train_on_two_machines(tmp_path: Path) -> None:
    ports = dict(zip(("7100", "7200", "9401", "9402"), map(str, free_ports(4)), strict=True))
    replaced = {"10.0.0.1": "127.0.0.1", **ports}
    keys, paramserver, learner = blocks("trainer")
    (actor,) = blocks("player")
    with ExitStack() as stack:
        trainer, player = (stack.enter_context(Machine(tmp_path / name, replaced)) for name in ("trainer", "player"))
        for command in keys.splitlines():
            assert trainer.start(command).wait(timeout=SECONDS) == 0
        (player.folder / "keys").mkdir()
        for file in blocks("from trainer to player")[0].split():
            shutil.copy(trainer.folder / file, player.folder / file)
        served = trainer.start(paramserver)
        trained = trainer.start(learner, "--stop.env_frames", "20000", "--learner.threads", "1")
        played = player.start(actor)
        until(lambda: trained.poll() is not None or served.poll() is not None or played.poll() not in (None, 0), "the run to be over")
        assert trained.poll() == 0, trainer.said() + player.said()
        for process in (served, played):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=SECONDS) == 0, trainer.said() + player.said()
        report = read_report(trainer.folder / "runs" / "two")
        assert report["env_frames"] >= 20_000
        assert list((trainer.folder / "runs" / "two" / "checkpoints").iterdir())
        # The player has nothing of the run except what the actor reports about itself, and no key of the servers.
        assert not (player.folder / "runs" / "two" / "checkpoints").exists()
        assert {file.name for file in (player.folder / "keys").iterdir()} == {"server.public", "client-actor-player.secret"}


def services() -> dict[str, Any]:
    return dict(yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"])


def test_the_compose_file_is_valid() -> None:
    words = ["--builtin-schema", "vendor.compose-spec", str(COMPOSE / "compose.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *words], capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def read_container(
    name: str, experiment: Path = ROOT / CATCH, *, environ: Mapping[str, str] = MappingProxyType({})
) -> tuple[RunSettings, Identity]:
    """What a container reads from an experiment; ``environ`` is the environment of docker compose."""
    service = services()[name]
    words = [word.replace("/etc/herd/experiment.yaml", str(experiment)) for word in service["command"]]
    assert words[0] == f"--config={experiment}"
    told = {
        key: re.sub(r"\$\{(\w+):-(.*?)\}", lambda found: environ.get(found[1], found[2]), value)
        for key, value in service.get("environment", {}).items()
    }
    return read_command_line(service_of(program_of(name)), words, dockerfile_variables(program_of(name)) | told)


def program_of(name: str) -> str:
    """The program of a service in the Compose file."""
    return "learner" if name in MEMBERS else name


def dockerfile_variables(service: str) -> dict[str, str]:
    """The HERD_ variables set in a service's image."""
    return {name: value for name, value in dockerfiles.environment(service).items() if name.startswith("HERD_")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_containers_are_configured_with_each_others_addresses(name: str) -> None:
    service = services()[name]
    assert any(":/etc/herd/experiment.yaml:ro" in volume for volume in service["volumes"])
    settings, identity = read_container(name)
    assert service.get("profiles", []) == ([] if name in ALWAYS else [name])
    # With every service, so that all addresses are compared; a container has those that its experiment does not use, too.
    every = {"loss": "dice", "replay": "shared", "actor": {"inference": "remote", "environments": 4}, "evaluation": {"interval_seconds": 1}}
    pbt = {"agents": 2, "population": {"strategy": "pbt"}, "sweep": {"loss.policy_cost": [0.1, 0.01]}}
    run = RunSettings.model_validate({"name": settings.name, **every, **pbt})
    placed = placement(run, on_own_hosts(lambda place: f"{place.service}-{place.index}" if place.index else place.service))
    wanted = next(each.identity for each in placed if each.place.component.name == name)
    if name == "actor":  # the members of a population have their own test
        wanted = replace(wanted, addresses={**wanted.addresses, "learner": wanted.addresses["learner"][:1]})
    assert identity == replace(wanted, agent=None, index=None)
    assert set(service["image"].partition("/")[2].split(":")) >= {f"herd-{name}"}


def test_members_are_learners_in_the_order_of_the_actors_addresses() -> None:
    experiment = ROOT / "experiments" / "pbt-quick.yaml"
    (addresses,) = re.findall(r"^export HERD_LEARNERS=(\S+)$", PAGE, re.MULTILINE)
    settings, actor = read_container("actor", experiment, environ={"HERD_LEARNERS": addresses})
    assert actor.addresses["learner"] == tuple(f"tcp://{name}:7100" for name in ("learner", *MEMBERS))
    assert len(actor.addresses["learner"]) == settings.agents
    everything = services()
    for agent, name in enumerate(("learner", *MEMBERS)):
        assert (read_container(name, experiment)[1].agent or 0) == agent
        assert everything[name].get("profiles", ["population"]) == ["population"]
        own = {"profiles", "environment"}
        assert {key: value for key, value in everything[name].items() if key not in own} == {
            key: value for key, value in everything["learner"].items() if key not in own
        }


def test_mounted_files_exist() -> None:
    for service in services().values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (COMPOSE / source).is_file(), source
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())["providers"]
    targets = [volume.split(":")[1] for volume in services()["grafana"]["volumes"]]
    assert any(target.startswith(f"{provider['options']['path']}/") for target in targets)


def test_promtool_accepts_the_prometheus_configuration(tmp_path: Path) -> None:
    """The rules lie beside the configuration, as they are mounted."""
    shutil.copy(COMPOSE / "prometheus.yaml", tmp_path)
    for rules in yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())["rule_files"]:
        shutil.copy(ROOT / "helm" / "herd" / "files" / rules, tmp_path)
    command = [tool("promtool"), "check", "config", str(tmp_path / "prometheus.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_scrape_targets_have_the_labels_used_by_rules_and_dashboard() -> None:
    (job,) = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())["scrape_configs"]
    assert {rule["target_label"] for rule in job["relabel_configs"]} == {"namespace", "release", "component", "pod"}
    names = job["dns_sd_configs"][0]["names"]
    assert set(names) == {*PROGRAMS, *MEMBERS}
    (component,) = (rule for rule in job["relabel_configs"] if rule["target_label"] == "component")
    assert [re.fullmatch(component["regex"], name)[1] for name in names] == [program_of(name) for name in names]  # type: ignore[index]
    assert job["dns_sd_configs"][0]["port"] == METRICS_PORT
