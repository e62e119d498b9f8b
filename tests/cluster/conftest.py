"""The suite for developers with a cluster: ``make test-cluster``. It never skips: without a cluster it fails with one line."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from kubernetes.client import (
    CoreV1Api,
    StorageV1Api,
    V1Namespace,
    V1ObjectMeta,
    V1PersistentVolumeClaim,
    V1PersistentVolumeClaimSpec,
    V1VolumeResourceRequirements,
)

from herd.kube import Cluster
from tests.cluster.cluster_settings import SHARED_CLAIM, ClusterSettings, SettingsProblemError
from tests.cluster.live_release import LiveRelease


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect kills of components that the chosen run does not have."""
    pods = ClusterSettings.pods_of(os.environ.get("CLUSTER_RUN") or "dice", 1)
    left_out = [
        item
        for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.callspec.params.get("component", "learner") not in pods
        if item.path.parent.name == "cluster"
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Report in one line what is missing, before any test runs."""
    if any(item.get_closest_marker("cluster") for item in session.items) and not session.config.option.collectonly:
        try:
            ClusterSettings.read(os.environ)
        except SettingsProblemError as problem:
            raise pytest.UsageError(str(problem)) from problem


def pytest_exception_interact(node: pytest.Item | pytest.Collector, report: pytest.CollectReport | pytest.TestReport) -> None:
    """Print the state of the release after a failure, because its namespace is about to be deleted."""
    live = getattr(node, "funcargs", {}).get("live")
    if isinstance(live, LiveRelease):
        report.sections.append(("the release at that moment", live.describe()))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRelease]:
    """The chart, installed into its own namespace (Pod Security ``restricted``), which is deleted at the end unless it is to be kept."""
    settings = ClusterSettings.read(os.environ)
    namespace = f"herd-test-{uuid.uuid4().hex[:8]}"
    cluster = Cluster(context=settings.context, namespace=namespace)
    core = CoreV1Api(cluster.client)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    core.create_namespace(V1Namespace(metadata=V1ObjectMeta(name=namespace, labels=labels)))
    try:
        classes = StorageV1Api(cluster.client).list_storage_class().items
        is_default = "storageclass.kubernetes.io/is-default-class"
        volumes = any(((each.metadata and each.metadata.annotations) or {}).get(is_default) == "true" for each in classes)
        if settings.run == "population":
            resources = V1VolumeResourceRequirements(requests={"storage": "1Gi"})
            spec = V1PersistentVolumeClaimSpec(access_modes=[settings.access_mode], resources=resources)
            claim = V1PersistentVolumeClaim(metadata=V1ObjectMeta(name=SHARED_CLAIM), spec=spec)
            core.create_namespaced_persistent_volume_claim(namespace, claim)
        release = LiveRelease(cluster, settings, tmp_path_factory.mktemp("values"), volumes=volumes)
        release.helm("install", values=settings.values(volumes=volumes))
        yield release
    finally:
        if settings.keep:
            print(f"namespace {namespace} stays: kubectl delete namespace {namespace}")
        else:
            core.delete_namespace(namespace)
        cluster.close()
