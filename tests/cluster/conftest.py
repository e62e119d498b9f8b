"""The suite for developers with a cluster: ``make test-cluster``. It never skips: without a cluster it fails with one line."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from herd.kube.cluster import open_cluster
from herd.kube.kubeconfig import Access
from tests.cluster.cluster_settings import SHARED_CLAIM, ClusterSettings, SettingsProblemError
from tests.cluster.helm_release import HelmError, HelmRelease
from tests.cluster.live_release import LiveRelease, delete_namespace, has_default_storage, make_claim, make_namespace
from tests.cluster.live_trouble import describe

RELEASE = "herd"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Report in one line what is missing, before any test runs."""
    if any(item.get_closest_marker("cluster") for item in session.items) and not session.config.option.collectonly:
        try:
            ClusterSettings.read(os.environ)
        except SettingsProblemError as problem:
            raise pytest.UsageError(str(problem)) from problem


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that do not apply: tests of processes if no pod runs or for another kind of run, otherwise tests of objects."""
    of_run = {"agents": "test_cluster_agents.py", "population": "test_cluster_population.py"}.get(
        os.environ.get("CLUSTER_RUN", ""), "test_cluster_release.py"
    )
    chosen = "test_cluster_objects.py" if os.environ.get("CLUSTER_PROCESSES") == "0" else of_run
    left_out = [item for item in items if item.path.parent == Path(__file__).parent and item.path.name != chosen]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_exception_interact(node: pytest.Item | pytest.Collector, report: pytest.CollectReport | pytest.TestReport) -> None:
    """Print the state of the release after a failure, because its namespace is about to be deleted."""
    installed = getattr(node, "funcargs", {}).get("installed")
    if isinstance(installed, Installed):
        report.sections.append(("the release at that moment", describe(installed.live.cluster, installed.helm.name)))


@dataclass(frozen=True)
class Installed:
    """The release under test."""

    settings: ClusterSettings
    helm: HelmRelease
    live: LiveRelease
    volumes: bool
    """Whether the files of learner and bandit outlive their pods."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The chart, installed into its own namespace, which is deleted at the end in any case unless it is to be kept."""
    settings = ClusterSettings.read(os.environ)
    namespace = f"herd-test-{uuid.uuid4().hex[:8]}"
    cluster = open_cluster(Access(None, settings.context, namespace), os.environ)
    folder: Path = tmp_path_factory.mktemp("values")
    helm = HelmRelease(settings, RELEASE, namespace, folder)
    try:
        volumes = has_default_storage(cluster)
        make_namespace(cluster, namespace)
        if settings.run == "population":
            make_claim(cluster, SHARED_CLAIM, settings.access_mode)
        try:
            helm.install(settings.values(volumes=volumes))
        except HelmError as error:
            raise HelmError(f"{error}\n{describe(cluster, RELEASE)}") from error
        yield Installed(settings, helm, LiveRelease(cluster, RELEASE, settings.timeout_seconds), volumes)
    finally:
        if settings.keep:
            print(f"namespace {namespace} stays: kubectl delete namespace {namespace}")
        else:
            delete_namespace(cluster, namespace)
        cluster.close()
