"""``CLUSTER_PROCESSES=0 make test-cluster`` as a whole, on the fake API server: with both Helms, with controllers and without."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helm.tools.fetch_tools import ENGINES, helm_program
from tests.helm.rendering import CHART, NEWEST, helm
from tests.kube.conftest import REPOSITORY, command_environment
from tests.kube.fake_api_server import FakeCluster, serving, write_kubeconfig
from tests.kube.fake_controllers import Controllers
from tests.patience import patient

pytestmark = pytest.mark.processes


def run_suite(
    folder: Path,
    *more_words: str,
    make_pods: bool,
    engine: str = NEWEST,
    run: str = "dice",
    keep: bool = False,
    hurt: Callable[[FakeCluster], object] | None = None,
) -> str:
    """Run the suite and return what it prints, including its failures."""
    helm(engine, "version")  # fetches Helm, or skips with the chart's other tests
    fake = FakeCluster()
    controllers = Controllers(fake)

    def look() -> None:
        if make_pods:
            controllers()
        if hurt is not None:
            hurt(fake)

    fake.on_list = look
    with serving(fake) as address:
        environ = command_environment(
            KUBECONFIG=str(write_kubeconfig(folder / "kubeconfig", address)),
            HELM=str(helm_program(engine)),
            CLUSTER_CHART=str(CHART),
            CLUSTER_PROCESSES="0",
            CLUSTER_SHARDS="2",
            CLUSTER_RUN=run,
            CLUSTER_KEEP=str(int(keep)),
            CLUSTER_TIMEOUT_SECONDS="100",
        )
        options = ("-m", "cluster", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider", *more_words)
        words = [sys.executable, "-m", "pytest", *options, str(REPOSITORY / "tests" / "cluster")]
        done = subprocess.run(words, capture_output=True, text=True, cwd=REPOSITORY, env=environ, timeout=patient(500), check=False)
    assert bool(fake.objects["namespaces"]) == keep
    return done.stdout


@pytest.mark.parametrize(
    ("engine", "run", "make_pods"),
    [
        (ENGINES[0], "dice", False),  # a bare API server
        (NEWEST, "agents", True),
    ],
)
def test_the_suite_passes_without_processes(tmp_path: Path, engine: str, run: str, make_pods: bool) -> None:
    said = run_suite(tmp_path, make_pods=make_pods, engine=engine, run=run)
    assert re.search(r"^10 passed, \d+ deselected", said, re.MULTILINE), said


def test_the_suite_detects_objects_that_differ_from_the_chart(tmp_path: Path) -> None:
    def hurt(fake: FakeCluster) -> None:
        for service in fake.objects.get("services", []):
            service["spec"]["ports"] = []

    said = run_suite(tmp_path, "-k", "test_every_object", "--tb=short", make_pods=False, keep=True, hurt=hurt)
    assert "test_every_object_of_the_chart_is_installed_as_rendered" in said, said
    assert "1 failed" in said, said
    assert "the release at that moment" in said
    assert "0 pods of herd in herd-test-" in said
    assert " stays: kubectl delete namespace herd-test-" in said
