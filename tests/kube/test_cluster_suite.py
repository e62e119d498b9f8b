"""The helper code of tests/cluster, tested without a cluster: settings, helm commands, observing, killing and leftovers."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from herd.config.loading import load_settings
from tests.cluster.cluster_settings import REPOSITORY, RUNS, ClusterSettings
from tests.cluster.live_release import (
    LiveRelease,
    WentBackError,
)
from tests.kube.conftest import Served, command_environment
from tests.kube.fake_objects import Json, holder_page, learner_page, pod
from tests.patience import patient


def program(folder: Path, body: str, name: str = "fake-helm") -> str:
    file = folder / name
    file.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    file.chmod(0o755)
    return str(file)


def chart(folder: Path) -> Path:
    (folder / "chart").mkdir(exist_ok=True)
    (folder / "chart" / "Chart.yaml").write_text("name: herd\n")
    return folder / "chart"


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"KUBECONFIG": "somewhere", "HELM": program(folder, "print(*sys.argv[1:])"), "CLUSTER_CHART": str(chart(folder)), **more}


@pytest.mark.processes
def test_without_a_cluster_the_suite_fails_with_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "cluster", "-q", "-p", "no:cacheprovider", str(REPOSITORY / "tests" / "cluster")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=command_environment(),
        timeout=patient(100),
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR")] == [
        "ERROR: tests/cluster needs KUBECONFIG: the cluster to install into (see docs/kubernetes-commands.md)"
    ]
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_any_number_of_shards_is_a_valid_run(tmp_path: Path, shards: int, run: str) -> None:
    values = ClusterSettings.read(environment(tmp_path, CLUSTER_SHARDS=str(shards), CLUSTER_RUN=run)).values(volumes=False)
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(values["experiment"]))
    settings = load_settings([file], [f"--learner.shards={shards}"], {})
    assert settings.learner.batch_size / shards == 16
    # Every shard gets unrolls even from few actors, because each actor connects to all shards.
    assert settings.actor.links >= shards


@pytest.fixture
def live(served: Served) -> Iterator[LiveRelease]:
    cluster = served.connect()
    yield LiveRelease(cluster, "herd", timeout_seconds=10, look_seconds=0.01)
    cluster.close()


def test_counters_are_observed(live: LiveRelease, served: Served) -> None:
    served.fake.pages["herd-learner-0"] = learner_page(frames=100, updates=50, lineage=4)
    served.fake.pages["herd-learner-1"] = learner_page(frames=110, updates=50, lineage=4)
    served.fake.pages["herd-paramserver-0"] = holder_page(updates=49, lineage=4)
    seen = live.observe()
    assert (seen.version, seen.learner_frames, seen.learner_lineage, seen.checkpoint_updates) == ((4, 49), 210, 4, 45)
    del served.fake.pages["herd-learner-1"]
    seen = live.observe()
    assert (seen.learner_frames, seen.learner_lineage) == (None, None)  # a sum without one shard would be smaller than before
    del served.fake.pages["herd-paramserver-0"]
    assert live.observe().version is None


def test_a_decreasing_version_is_detected(live: LiveRelease, served: Served) -> None:
    for lineage, updates in ((1, 5), (1, 6), (2, 1)):
        served.fake.pages["herd-paramserver-0"] = holder_page(updates=updates, lineage=lineage)
        live.observe()
    served.fake.pages["herd-paramserver-0"] = holder_page(updates=0, lineage=0, age="NaN")
    live.observe()  # the server restarted and holds no weights yet
    served.fake.pages["herd-paramserver-0"] = holder_page(updates=7, lineage=1)
    with pytest.raises(WentBackError, match=r"from \(2, 1\) to \(1, 7\)"):
        live.observe()


def test_waiting_for_frames_succeeds_or_times_out(served: Served, live: LiveRelease) -> None:
    updates = itertools.count(100)
    served.fake.pages["herd-paramserver-0"] = lambda: holder_page(updates=next(updates))
    seen = live.until_frames_flow(least=1_000)
    assert seen.version is not None
    assert seen.version[1] > 100
    served.fake.pages["herd-paramserver-0"] = holder_page(updates=1_000)
    hurried = LiveRelease(live.cluster, "herd", timeout_seconds=0.2, look_seconds=0.01)
    with pytest.raises(AssertionError, match=r"not within 0 s: more than .* last seen: Observation"):
        hurried.until_frames_flow()


def test_server_errors_are_retried(served: Served, live: LiveRelease) -> None:
    served.fake.failing[("list", "pods")] = [500, 503]
    assert len(live.until("pods", live.pods, bool)) == 7


def test_a_kill_waits_until_a_new_pod_is_ready(served: Served, live: LiveRelease) -> None:
    looks = itertools.count()

    def controller(killed: Json) -> None:
        again = pod(killed["metadata"]["name"], "learner", ready=False)
        again["metadata"]["uid"] = "another"
        served.fake.objects["pods"].append(again)

    def recover() -> None:
        if next(looks) == 3:
            served.fake.objects["pods"][-1] = pod("herd-learner-0", "learner")
            served.fake.objects["pods"][-1]["metadata"]["uid"] = "another"

    served.fake.on_delete = controller
    served.fake.on_list = recover
    assert live.kill("learner").name == "herd-learner-0"
    assert {each.uid for each in live.pods("learner")} == {"another", "uid-herd-learner-1"}
    assert next(looks) > 3
    [query] = [query for method, _, query in served.fake.requests if method == "DELETE"]
    assert query["gracePeriodSeconds"] == "1"


def ending(name: str, uid: str) -> Json:
    """A pod that was deleted and has not ended yet."""
    old = pod(name, "actor", ready=False)
    old["metadata"] |= {"uid": uid, "deletionTimestamp": "2026-11-21T12:00:00Z"}
    return old


def test_terminating_pods_are_neither_killed_nor_counted(served: Served, live: LiveRelease) -> None:
    served.fake.objects["pods"].insert(0, ending("herd-actor-5d9f7c-aaaa0", "uid-old"))
    served.fake.objects["pods"].append(ending("herd-actor-5d9f7c-zzzzz", "uid-older"))

    def controller(killed: Json) -> None:
        served.fake.objects["pods"] += [killed | {"metadata": killed["metadata"] | {"deletionTimestamp": "2026-11-21T12:00:01Z"}}]
        served.fake.objects["pods"] += [pod("herd-actor-5d9f7c-ddddd", "actor")]

    served.fake.on_delete = controller
    assert live.kill("actor").name == "herd-actor-5d9f7c-aaaaa"
    assert {each.name[-5:] for each in live.lasting("actor")} == {"bbbbb", "ccccc", "ddddd"}
