"""The commands of docs/two-machines.md, with a folder for each machine, and the contents of its Compose file."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from herd.config.loading import load_settings
from herd.config.loading.sources import split_arguments
from herd.topology import COMPONENTS, METRICS_PORT, SERVICES, Service
from tests.observability.prometheus_server import tool
from tests.patience import patient
from tests.system.whole_runs import CATCH, ROOT, SECONDS, environment, free_ports, read_report, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.config.settings import RunSettings

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


def read_settings(name: str, experiment: Path = ROOT / CATCH, *, environ: Mapping[str, str] = MappingProxyType({})) -> RunSettings:
    """The settings that a container reads from an experiment; ``environ`` is the environment of docker compose."""
    service = services()[name]
    files, words = split_arguments(service["command"], file_option="--config")
    assert files == [Path("/etc/herd/experiment.yaml")]
    told = {
        key: re.sub(r"\$\{(\w+):-(.*?)\}", lambda found: environ.get(found[1], found[2]), value)
        for key, value in service.get("environment", {}).items()
    }
    return load_settings([experiment], words, dockerfile_variables(program_of(name)) | told)


def program_of(name: str) -> str:
    """The program of a service in the Compose file."""
    return "learner" if name in MEMBERS else name


def dockerfile_variables(service: str) -> dict[str, str]:
    """The HERD_ variables set in a service's image."""
    return dict(re.findall(r"(HERD_\w+)=(\S+)", (ROOT / "services" / service / "Dockerfile").read_text()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_containers_are_configured_with_each_others_addresses(name: str) -> None:
    service = services()[name]
    assert any(":/etc/herd/experiment.yaml:ro" in volume for volume in service["volumes"])
    own = getattr(read_settings(name), PROGRAMS[name].section)
    assert (own.metrics_host, own.metrics_port) == ("*", METRICS_PORT)
    assert service.get("profiles", []) == ([] if name in ALWAYS else [name])
    if PROGRAMS[name].port is not None:
        assert (own.host, own.port) == ("*", PROGRAMS[name].port)
    if name == "actor":
        assert own.index is None
    for asks in next(component for component in COMPONENTS if component.name == name).asks:
        told = getattr(own, asks.setting)
        address = f"tcp://{asks.components[-1]}:{PROGRAMS[asks.components[-1]].port}"
        assert told in (address, (address,))
    assert set(service["image"].partition("/")[2].split(":")) >= {f"herd-{name}"}


def test_members_are_learners_in_the_order_of_the_actors_addresses() -> None:
    experiment = ROOT / "experiments" / "pbt-quick.yaml"
    (addresses,) = re.findall(r"^export HERD_LEARNERS=(\S+)$", PAGE, re.MULTILINE)
    settings = read_settings("actor", experiment, environ={"HERD_LEARNERS": addresses})
    assert settings.actor.learner == tuple(f"tcp://{name}:7100" for name in ("learner", *MEMBERS))
    assert len(settings.actor.learner) == settings.agents
    everything = services()
    for agent, name in enumerate(("learner", *MEMBERS)):
        assert read_settings(name, experiment).learner.agent == agent
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
