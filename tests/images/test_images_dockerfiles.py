"""Requirements on every image, checked in its Dockerfile: it is pinned, runs without root, and has the settings of a container."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from herd.config.addresses import ServiceName
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.service.identity import ANY_PORT, take_identity
from herd.topology import METRICS_PORT, SERVICE_NAMES, SERVICES, Service
from tests.images.dockerfiles import ROOT, WITH_TORCH, entrypoint, environment, path_of, shipped, stages
from tests.patience import patient

pytestmark = pytest.mark.processes

PORTS = {each.name: {METRICS_PORT, each.port, each.group_port} - {None} for each in SERVICES}
PINNED_IMAGE = re.compile(r"[a-z/]+:\d+\.\d+\.\d+[-a-z]*|.+@sha256:[0-9a-f]{64}")


def test_every_service_has_a_dockerfile() -> None:
    assert {path.parent.parent.name for path in (ROOT / "services").glob("*/herd_*/__main__.py")} == set(SERVICE_NAMES)
    assert {path.parent.name for path in ROOT.glob("services/*/*Dockerfile*")} == set(SERVICE_NAMES)


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_hadolint_reports_no_problem(service: str) -> None:
    program = Path(sys.executable).with_name("hadolint")
    assert program.exists(), "hadolint is missing: make dev"
    found = subprocess.run(
        [program, "--no-color", "--failure-threshold", "style", path_of(service)],
        check=False,
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_base_images_and_packages_are_pinned(service: str) -> None:
    text = path_of(service).read_text()
    base = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert base is not None
    assert PINNED_IMAGE.fullmatch(base[1]), base[1]
    names = {stage.name for stage in stages(service)}
    assert {stage.base for stage in stages(service)} <= names | {"${BASE}"}
    installs = re.findall(r"pip[^&;\n]*? install [^&;\n]+", text.replace("\\\n", " "))
    assert len(installs) >= 3
    for install in installs:
        assert "--requirement" in install or "\"$(grep '^torch==' requirements.txt)\"" in install or "--no-index" in install, install
        assert "--no-index" in install or "--only-binary :all:" in install, install
    assert not re.search(r"https?://", text)
    # Packages of other suites are added to every image, because each process may have to create an environment to learn its spaces.
    (more,) = [install for install in installs if "${PACKAGES}" in install]
    assert "--constraint constraints.txt --requirement requirements.txt" in more
    assert "--no-deps" not in more
    assert re.search(r"^ARG PACKAGES=$", text, re.MULTILINE), "none by default"


@pytest.mark.parametrize("service", ["actor", "evaluator"])
def test_images_with_deepmind_lab_run_their_service_without_root(service: str) -> None:
    target = f"{service}-with-deepmind-lab"
    assert entrypoint("actor", target) == entrypoint(service)
    assert environment("actor", target).items() >= environment(service).items()
    assert shipped("actor", target).last("USER") == "10001:10001"
    copied = [rest for word, rest in shipped("actor", target).instructions if word == "COPY"]
    assert copied[-1] == "--from=deepmind-lab /opt/herd /opt/herd"


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_a_container_runs_its_service_without_root(service: ServiceName) -> None:
    stage = shipped(service)
    assert entrypoint(service) == ["python", "-m", f"herd_{service}"]
    assert stage.last("USER") == "10001:10001"
    assert stage.last("WORKDIR") == "/var/lib/herd"
    assert {int(port) for port in (stage.last("EXPOSE") or "").split()} == PORTS[service]
    assert stage.last("CMD") is None, "arguments come from the pod"
    assert environment(service)["PATH"].startswith("/opt/herd/bin:")


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_listens_on_the_documented_ports(service: Service) -> None:
    identity, words, variables = take_identity(service, [], environment(service.name))
    assert identity.metrics == ("*", METRICS_PORT)
    assert identity.listen == (ANY_PORT if service.port is None else ("*", service.port))
    assert load_settings([], words, variables) == RunSettings()


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_python_is_configured_for_a_read_only_installation(service: str) -> None:
    assert environment(service).items() >= {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}.items()


@pytest.mark.parametrize("service", WITH_TORCH)
def test_the_allocator_is_tuned_before_the_process_starts(service: str) -> None:
    assert environment(service).items() >= ALLOCATOR_ENVIRONMENT.items()
    assert "TORCH_INDEX" in path_of(service).read_text()


@pytest.mark.parametrize("service", SERVICES, ids=SERVICE_NAMES)
def test_labels_name_version_and_licenses(service: Service) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    labels = shipped(service.name).last("LABEL") or ""
    assert f'org.opencontainers.image.version="{version}"' in labels
    assert ("GPL-2.0-only" in labels) is (service.packages == "actor"), "ale-py is GPL-2.0, and in the images of those who play alone"


def test_the_build_context_holds_exactly_the_copied_files() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        word
        for service in SERVICE_NAMES
        for stage in stages(service)
        for found, rest in stage.instructions
        if found == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert {word for word in copied if not word.startswith("services/")} | {"services"} == allowed
    assert all((ROOT / word).exists() for word in copied)
