"""``herd status --release`` as a whole command, against a small API server."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from herd.cli import preflight
from herd.cli.main import main
from herd.kube import Cluster, KubeError, read_pod
from tests.kube.api_server import ApiServer, serving, write_kubeconfig
from tests.kube.objects import BEFORE_RESTART, holder_page, learner_page, pending_pod, pod, waiting_pod, workload

ROOT = Path(__file__).parents[2]


class Answer(NamedTuple):
    code: int
    output: str
    errors: str


Herd = Callable[..., Answer]


@pytest.fixture
def server() -> ApiServer:
    """Release ``herd`` in namespace ``rl``: two learner shards, a parameter server with a replica, three actors; and another release."""
    frames = itertools.count(1_000, 500)
    pods = [pod(f"herd-learner-{rank}", "learner") for rank in range(2)]
    pods += [pod("herd-paramserver-0", "paramserver"), pod("herd-paramserver-replica-0", "paramserver-replica", restarts=2)]
    pods += [pod(f"herd-actor-5d9f7c-{word}", "actor") for word in ("aaaaa", "bbbbb", "ccccc")]
    state = ApiServer(
        objects={
            "pods": [*pods, pod("other-actor-x", "actor", release="other")],
            "deployments": [workload("Deployment", "actor", 3), workload("Deployment", "actor", 1, release="other")],
            "statefulsets": [
                workload("StatefulSet", name, number) for name, number in (("learner", 2), ("paramserver", 1), ("paramserver-replica", 1))
            ],
        }
    )
    for rank in range(2):
        state.pages[f"herd-learner-{rank}"] = lambda rank=rank: learner_page(frames=next(frames), updates=120, rank=rank)  # type: ignore[misc]
    for word in ("aaaaa", "bbbbb", "ccccc"):
        state.pages[f"herd-actor-5d9f7c-{word}"] = holder_page(updates=117, blocked=1.0)
    return state


@pytest.fixture
def herd(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Herd]:
    """Run ``herd status --release WORDS`` in this process."""
    for name in [name for name in os.environ if name.startswith("KUBE") or "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words: str) -> Answer:
        code = main(["status", "--release", *words])
        return Answer(code, *capsys.readouterr())

    with serving(server) as address:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", address)))
        yield run


def test_a_release_is_shown_with_speed_lag_returns_and_restarts(server: ApiServer, herd: Herd) -> None:
    code, output, errors = herd("herd", "--seconds", "0.3")
    assert (code, errors) == (0, "")
    lines = [line.split() for line in output.splitlines()]
    assert output.startswith("herd in namespace rl\n")
    assert any(line[:3] == ["catch", "80", "0.75"] for line in lines), output  # episodes of both shards; the return of one
    assert "actors wait" in output or "learner" in output
    assert ["learner", "2/2", "0", "2", "Running"] in lines
    assert ["paramserver-replica", "1/1", "2", "1", "Running"] in lines
    # Only the pod that was restarted is listed, with the end of its last container.
    assert [line[0] for line in lines if line and line[0].startswith("herd-")] == ["herd-paramserver-replica-0"]
    assert "ended with exit code 75 (Error)" in output
    assert herd("herd", "--seconds", "0", "--all").output.count("herd-actor-5d9f7c-") == 3


def test_json_has_every_number(herd: Herd) -> None:
    said = json.loads(herd("herd", "--seconds", "0.3", "--json").output)
    assert said["components"]["learner"] == {"wanted": 2, "ready": 2, "restarts": 0, "states": {"Running": 2}}
    pods = {each["name"]: each for each in said["pods"]}
    assert (pods["herd-learner-1"]["rank"], pods["herd-learner-1"]["node"]) == (1, "node-1")
    assert "other-actor-x" not in pods
    assert said["frames_per_second"] > 0
    assert said["env_frames"] > BEFORE_RESTART  # of the whole run
    assert (said["learner_updates"], said["policy_lag"], said["queue_unrolls"]) == (120, 2.0, 7)
    assert said["tasks"] == [{"name": "catch", "episodes": 80, "episode_return": 0.75}]
    assert said["notes"] == []
    once = json.loads(herd("herd", "--seconds", "0", "--json").output)
    assert (once["frames_per_second"], once["bottleneck"], once["learner_updates"]) == (None, "starting", 120)


def test_each_agent_has_its_numbers(server: ApiServer, herd: Herd) -> None:
    """The learners of two agents have the same ranks."""
    server.objects["pods"] = [each for each in server.objects["pods"] if "learner" not in each["metadata"]["name"]]
    for agent in range(2):
        made = pod(f"herd-learner-{agent}-0", "learner")
        made["metadata"]["labels"]["herd/agent"] = str(agent)
        server.objects["pods"].append(made)
        frames = itertools.count(1_000 * (agent + 1), 10)
        server.pages[f"herd-learner-{agent}-0"] = lambda frames=frames, agent=agent: learner_page(  # type: ignore[misc]
            frames=next(frames), updates=100 + agent
        )
    said = json.loads(herd("herd", "--seconds", "0.2", "--json").output)
    assert [each["learner_updates"] for each in said["agents"]] == [100, 101]
    assert all(each["policy_lag"] == 2.0 and each["frames_per_second"] > 0 for each in said["agents"])
    assert said["env_frames"] == 2 * BEFORE_RESTART + 1_010 + 2_010
    assert [(each["agent"], each["rank"]) for each in said["pods"] if each["component"] == "learner"] == [(0, 0), (1, 0)]


def test_every_shard_of_a_pod_is_read(server: ApiServer, herd: Herd) -> None:
    for each in server.objects["pods"]:
        if "learner" in (name := each["metadata"]["name"]):
            each["spec"]["containers"][0]["ports"].append({"name": "metrics-1", "containerPort": 9401, "protocol": "TCP"})
            server.pages[f"{name}:9401"] = learner_page(frames=1_000, updates=120)
    said = json.loads(herd("herd", "--seconds", "0", "--json").output)
    assert (said["tasks"][0]["episodes"], said["notes"]) == (4 * 40, [])
    del server.pages["herd-learner-1:9401"]
    assert json.loads(herd("herd", "--seconds", "0", "--json").output)["env_frames"] is None


def test_a_sample_of_many_actors_is_asked_and_pods_in_trouble_come_first(server: ApiServer, herd: Herd) -> None:
    server.objects["pods"] = [each for each in server.objects["pods"] if "actor" not in each["metadata"]["name"]]
    many = [pod(f"herd-actor-5d9f7c-{number:05}", "actor", ready=number % 20 != 7, restarts=int(number == 234)) for number in range(1_300)]
    server.objects["pods"] += many
    server.objects["deployments"][0] = workload("Deployment", "actor", 1_300)
    server.pages |= {each["metadata"]["name"]: holder_page(updates=1) for each in many}
    output = herd("herd", "--seconds", "0").output
    assert server.requests.count(("list", "", "pods")) == 3  # 500 per answer
    assert server.requests.count(("get", "", "pods/proxy")) <= 2 + 16
    lines = [line.split() for line in output.splitlines()]
    assert ["actor", "1,235/1,300", "1", "1,300", "Running"] in lines
    assert output.count("not ready") == 20
    assert "and 47 more (--all)" in output


@pytest.mark.parametrize(
    ("item", "state", "trouble"),
    [
        (pod("herd-learner-0", "learner"), "Running", ""),
        (pod("herd-learner-0", "learner", restarts=3), "Running", "ended with exit code 75 (Error)"),
        (pending_pod("herd-learner-0", "learner", "3 Insufficient cpu."), "Unschedulable", "3 Insufficient cpu."),
        (waiting_pod("herd-learner-0", "learner", "CrashLoopBackOff", "back-off 40s", restarts=4), "CrashLoopBackOff", "back-off 40s"),
        (waiting_pod("herd-learner-0", "learner", "ContainerCreating", ""), "Pending", ""),
    ],
)
def test_a_pod_in_trouble_has_a_reason(item: dict[str, object], state: str, trouble: str) -> None:
    found = read_pod(item)
    assert found is not None
    assert (found.state, found.trouble) == (state, trouble)
    item["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"  # type: ignore[index]
    assert (ending := read_pod(item)) is not None
    assert ending.state == "Terminating"
    del item["metadata"]["labels"]["app.kubernetes.io/component"]  # type: ignore[index]
    assert read_pod(item) is None


def test_pods_without_metrics_give_one_note_per_cause(server: ApiServer, herd: Herd) -> None:
    server.pages["herd-learner-1"] = "<html>not metrics</html>"
    del server.pages["herd-actor-5d9f7c-bbbbb"]
    said = json.loads(herd("herd", "--seconds", "0", "--json").output)
    assert len(said["notes"]) == 2
    assert any("herd-learner-1 did not answer with metrics" in note for note in said["notes"])
    assert any("herd-actor-5d9f7c-bbbbb" in note and "connection refused" in note for note in said["notes"])
    assert said["env_frames"] is None  # a sum without one shard would be wrong
    assert "frames/s" not in herd("herd", "--seconds", "0").output
    server.pages.clear()
    assert "check that networkPolicy.metricsFrom allows it" in herd("herd", "--seconds", "0").output
    server.statuses["pods/proxy"] = 403
    notes = [line for line in herd("herd", "--seconds", "0").output.splitlines() if line.startswith("no metrics")]
    assert len(notes) == 1
    assert "herd-learner-0 and 4 more: not allowed to get pods/proxy in namespace rl" in notes[0]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["hrd"], "no release hrd in namespace rl; its releases are: herd, other"),
        (["herd", "-n", "empty"], "no release herd in namespace empty; this namespace has no releases"),
        (["herd", "--context", "x"], "no context x; available are: fake"),
        (["herd", "--kubeconfig", "/nowhere"], "/nowhere does not exist"),
        (["herd", "runs/pong"], "cannot be combined"),
        (["herd", "--seconds", "-1"], "--seconds: should be a number from 0 to 600"),
    ],
)
def test_what_cannot_be_shown_is_one_line_and_exit_code_2(herd: Herd, words: list[str], problem: str) -> None:
    code, output, errors = herd(*words)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert problem in errors


def test_refusals_of_the_server_are_one_line(server: ApiServer, herd: Herd) -> None:
    for status, problem in (
        (401, "does not accept the credentials: log in again"),
        (403, 'not allowed to list pods in namespace rl: this needs verb "list" on resource "pods"'),
        (500, "answered 500 to list pods"),
    ):
        server.statuses["pods"] = status
        code, output, errors = herd("herd", "--seconds", "0")
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert problem in errors


def test_the_cluster_is_chosen_in_the_documented_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeError, match=r"no cluster: ~/.kube/config does not exist"):
        Cluster()
    (tmp_path / ".kube").mkdir()
    home = write_kubeconfig(tmp_path / ".kube" / "config", "http://home:1", namespace="mine")
    assert (Cluster().client.configuration.host, Cluster().namespace) == ("http://home:1", "mine")
    first = write_kubeconfig(tmp_path / "first", "http://first:1", context="one", namespace="a")
    second = write_kubeconfig(tmp_path / "second", "http://second:1", context="two", namespace="b")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (tmp_path / "absent", first, second))))
    assert Cluster(context="one").namespace == "a"
    assert Cluster(context="two").client.configuration.host == "http://second:1"
    assert Cluster(home, namespace="c").namespace == "c"
    home.write_text("[1, 2]")
    with pytest.raises(KubeError, match="no usable kubeconfig"):
        Cluster(home)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    assert main(["status", "--release", "herd", "--kubeconfig", str(write_kubeconfig(home, address))]) == 2
    assert "does not answer: " in capsys.readouterr().err


def test_the_documented_role_matches_the_requests(server: ApiServer, herd: Herd) -> None:
    text = (ROOT / "docs" / "kubernetes-commands.md").read_text()
    [role] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "kind: Role" in block]
    rules = [itertools.product(rule["verbs"], rule["apiGroups"], rule["resources"]) for rule in role["rules"]]
    assert herd("herd", "--seconds", "0").code == 0
    assert set(server.requests) == set(itertools.chain(*rules))


def test_without_the_package_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(preflight, "find_spec", {}.get)
    assert main(["status", "--release", "herd"]) == 2
    assert capsys.readouterr().err == "herd: needs kubernetes: pip install 'herd-rl[kube]'\n"
