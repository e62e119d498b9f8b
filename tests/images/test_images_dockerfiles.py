"""Requirements on every image, checked in the Dockerfile: it is pinned, runs without root, and has the settings of a container."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.service.identity import ANY_PORT, take_identity
from herd.topology import METRICS_PORT, SERVICE_NAMES, SERVICES, Service
from tests.images.dockerfiles import DOCKERFILE, ROOT, entrypoint, environment, labels, shipped, stages
from tests.patience import patient

PINNED_IMAGE = re.compile(r"[a-z/]+:\d+\.\d+\.\d+[-a-z]*|.+@sha256:[0-9a-f]{64}")
each_service = pytest.mark.parametrize("service", SERVICES, ids=SERVICE_NAMES)


@pytest.mark.processes
def test_hadolint_reports_no_problem() -> None:
    program = Path(sys.executable).with_name("hadolint")
    assert program.exists(), "hadolint is missing: make dev"
    command: list[str | Path] = [program, "--no-color", "--failure-threshold", "style", DOCKERFILE]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=patient(60))
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


def test_every_service_has_a_stage_of_its_name() -> None:
    assert {path.parent.parent.name for path in (ROOT / "services").glob("*/herd_*/__main__.py")} == set(SERVICE_NAMES)
    assert {stage.name for stage in stages()} >= set(SERVICE_NAMES)
    assert stages()[-1].base == "${SERVICE}", "the default target"


def test_base_images_and_packages_are_pinned() -> None:
    text = DOCKERFILE.read_text()
    base = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert base is not None
    assert PINNED_IMAGE.fullmatch(base[1]), base[1]
    assert {stage.base for stage in stages()} <= {stage.name for stage in stages()} | {"${BASE}", "${SERVICE}"}
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
    target = "with-deepmind-lab"
    assert entrypoint(service, target) == entrypoint(service)
    assert environment(service, target) == environment(service)
    assert shipped(service, target).last("USER") == "10001:10001"
    copied = [rest for word, rest in shipped(service, target).instructions if word == "COPY"]
    assert copied == ["--from=deepmind-lab /opt/herd /opt/herd"]


@each_service
def test_a_container_runs_its_service_without_root(service: Service) -> None:
    stage, variables = shipped(service.name), environment(service.name)
    assert entrypoint(service.name) == ["python", "-m", f"herd_{service.name}"]
    assert stage.last("USER") == "10001:10001"
    assert stage.last("WORKDIR") == "/var/lib/herd"
    assert stage.last("COPY") == "--from=build /opt/herd /opt/herd"
    assert {int(port) for port in (stage.last("EXPOSE") or "").split()} == {METRICS_PORT, service.port, service.group_port} - {None}
    assert stage.last("CMD") is None, "arguments come from the pod"
    assert variables["PATH"].startswith("/opt/herd/bin:")
    # The installation is read-only, and numpy must not start a thread per CPU of the node.
    assert variables.items() >= {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}.items()
    if service.has_torch:  # its allocator is tuned before the process starts
        assert variables.items() >= ALLOCATOR_ENVIRONMENT.items()


@each_service
def test_a_container_listens_on_the_documented_ports(service: Service) -> None:
    identity, words, variables = take_identity(service, [], environment(service.name))
    assert identity.metrics == ("*", METRICS_PORT)
    assert identity.listen == (ANY_PORT if service.port is None else ("*", service.port))
    assert load_settings([], words, variables) == RunSettings()


@each_service
def test_labels_name_version_and_licenses(service: Service) -> None:
    found = labels(service.name)
    assert found["title"] == f"herd-{service.name}"
    assert found["description"].startswith("Herd's ")
    assert found["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    plays = service.packages == "actor"
    assert found["licenses"] == ("Apache-2.0 AND GPL-2.0-only" if plays else "Apache-2.0"), "ale-py is GPL-2.0"


def test_the_build_context_holds_exactly_the_copied_files() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        word
        for stage in stages()
        for found, rest in stage.instructions
        if found == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert {word for word in copied if not word.startswith("services/")} | {"services"} == allowed
    assert all((ROOT / word.replace("${SERVICE}", service)).exists() for word in copied for service in SERVICE_NAMES)
