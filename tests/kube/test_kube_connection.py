"""The choice of the cluster, and a clear one-line error if there is none or it does not answer."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes.client import CoreV1Api

from herd.cli import preflight
from herd.cli.main import main
from herd.kube.cluster import Want, open_cluster
from herd.kube.errors import KubeError, NotAllowedError, NotFoundError, UnreachableError
from herd.kube.kubeconfig import Access, find_connection
from tests.kube.conftest import Answer, Served
from tests.kube.fake_api_server import FakeCluster, serving, write_kubeconfig

Herd = Callable[..., Answer]
PODS = Want("list", "pods")


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def refusal(access: Access, environ: dict[str, str], **options: Path) -> str:
    with pytest.raises(KubeError) as raised:
        find_connection(access, environ, **options)
    line = str(raised.value)
    assert "\n" not in line
    return line


def test_the_cluster_is_chosen_in_the_documented_order(tmp_path: Path) -> None:
    for name in ("named", "variable", "home"):
        (tmp_path / name).mkdir()
        write_kubeconfig(tmp_path / name / "config", f"http://{name}:1", namespace=name)
    named, variable = tmp_path / "named" / "config", tmp_path / "variable" / "config"
    environ = {"KUBECONFIG": str(variable)}
    assert find_connection(Access(named), environ).configuration.host == "http://named:1"
    found = find_connection(Access(), environ)
    assert (found.configuration.host, found.namespace, found.source) == ("http://variable:1", "variable", "context fake")
    assert find_connection(Access(namespace="mine"), environ).namespace == "mine"
    (tmp_path / "home").rename(tmp_path / ".kube")
    assert find_connection(Access(), {}).configuration.host == "http://home:1"


def test_several_kubeconfig_files_are_merged_and_may_be_absent(tmp_path: Path) -> None:
    first = write_kubeconfig(tmp_path / "first", "http://first:1", namespace=None)
    second = tmp_path / "second"
    second.write_text(first.read_text().replace("fake", "other").replace("first:1", "second:1"))
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "absent"), str(first), str(second)])}
    assert find_connection(Access(context="fake"), environ).namespace == "default"
    assert find_connection(Access(context="other"), environ).configuration.host == "http://second:1"


def test_inside_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    account = tmp_path / "account"
    account.mkdir()
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert "this pod has no usable service account" in refusal(Access(), environ, service_account=account)
    (account / "token").write_text("secret")
    (account / "ca.crt").write_text("certificate")
    (account / "namespace").write_text("rl\n")
    found = find_connection(Access(), environ, service_account=account)
    assert (found.configuration.host, found.namespace) == ("https://10.0.0.1:443", "rl")
    assert "--context" in refusal(Access(context="fake"), environ, service_account=account)


def test_without_any_cluster_the_error_says_where_it_looked() -> None:
    assert refusal(Access(), {}).startswith("no cluster: ~/.kube/config does not exist, KUBECONFIG is not set")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "just words",
        "[1, 2]",
        "a: [",
        "apiVersion: v1\n",
        "contexts: 3\nusers: x\ncurrent-context: a\n",
        "\0",
        "contexts: [x]",
    ],
)
def test_an_invalid_kubeconfig_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    assert str(file) in refusal(Access(file), {})


def changed(file: Path, change: Callable[[dict[str, list[dict[str, dict[str, object]]]]], object]) -> Path:
    content = yaml.safe_load(file.read_text())
    change(content)
    file.write_text(yaml.safe_dump(content))
    return file


def test_unusable_contexts_are_refused(tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path / "config", "http://x:1")
    assert refusal(Access(file, "fak"), {}) == f"{file}: no context fak; available are: fake"
    changed(file, lambda content: content.pop("current-context"))
    assert refusal(Access(file), {}) == f"{file}: has no current context; choose one with --context: fake"
    assert find_connection(Access(file, "fake"), {}).configuration.host == "http://x:1"
    changed(file, lambda content: content["clusters"][0]["cluster"].pop("server"))
    assert "has no server" in refusal(Access(file, "fake"), {})
    changed(file, lambda content: content["contexts"][0]["context"].update(cluster="gone"))
    assert "context fake" in refusal(Access(file, "fake"), {})


@pytest.mark.processes
def test_a_failing_login_command_is_reported_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command, args in (("/no/such/program", []), (sys.executable, ["-c", "raise SystemExit('please log in')"])):
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": args, "interactiveMode": "Never"}}
        file = write_kubeconfig(tmp_path / "config", "http://x:1", user=user)
        line = refusal(Access(file), {})
        assert "the credentials of context fake are not available" in line
        assert ("please log in" if args else "/no/such/program") in line
    assert capfd.readouterr().err == ""


@pytest.mark.processes
def test_a_login_command_that_works_is_used(tmp_path: Path) -> None:
    credential = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "fresh"}}'
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", f"print({credential!r})"],
            "interactiveMode": "Never",
        }
    }
    found = find_connection(Access(write_kubeconfig(tmp_path / "config", "http://x:1", user=user)), {})
    assert found.configuration.api_key == {"BearerToken": "Bearer fresh"}


def test_a_closed_port_is_reported_as_unreachable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    cluster = open_cluster(Access(write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}")), {})
    with pytest.raises(UnreachableError, match=r"^the API server at http://127.0.0.1:\d+ \(context fake\) does not answer: .*refused$"):
        cluster.get(PODS, CoreV1Api(cluster.client).list_namespaced_pod, "rl")


def test_requests_to_a_silent_server_time_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        cluster = open_cluster(Access(write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}")), {})
        with pytest.raises(UnreachableError, match="does not answer"):
            cluster.read(PODS, CoreV1Api(cluster.client).list_namespaced_pod, "rl", read_seconds=0.2)


def test_a_server_without_tls_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        cluster = open_cluster(Access(write_kubeconfig(tmp_path / "config", address)), {})
        with pytest.raises(KubeError, match="no trusted connection to the API server"):
            cluster.get(PODS, CoreV1Api(cluster.client).list_namespaced_pod, "rl")
        thread.join(timeout=5)


def test_a_server_that_is_not_kubernetes_is_reported(tmp_path: Path, fake: FakeCluster) -> None:
    with serving(fake) as address:
        cluster = open_cluster(Access(write_kubeconfig(tmp_path / "config", address)), {})
        fake.pages["herd-learner-0"] = "hello"
        with pytest.raises(KubeError, match="like a Kubernetes API server"):
            cluster.get(PODS, CoreV1Api(cluster.client).connect_get_namespaced_pod_proxy_with_path, "herd-learner-0:9400", "rl", "metrics")
        with pytest.raises(KubeError, match="more than 3 bytes"):
            cluster.read(PODS, CoreV1Api(cluster.client).list_namespaced_pod, "rl", most_bytes=3)


def test_refusals_and_errors_of_the_server_are_reported(served: Served) -> None:
    cluster = served.connect()
    core = CoreV1Api(cluster.client)
    served.fake.forbidden.add(("list", "pods"))
    with pytest.raises(NotAllowedError) as forbidden:
        cluster.items(PODS, core.list_namespaced_pod, "rl")
    assert str(forbidden.value) == 'not allowed to list pods in namespace rl (user jane): this needs verb "list" on resource "pods"'
    with pytest.raises(NotFoundError, match='pods "gone" not found'):
        cluster.get(Want("get", "pods"), core.read_namespaced_pod, "gone", "rl")
    served.fake.failing[("get", "pods")] = [500, 418]
    with pytest.raises(UnreachableError, match="answered 500 to get pods: etcdserver: request timed out"):
        cluster.get(Want("get", "pods"), core.read_namespaced_pod, "herd-learner-0", "rl")
    with pytest.raises(KubeError, match="answered 418"):
        cluster.get(Want("get", "pods"), core.read_namespaced_pod, "herd-learner-0", "rl")
    served.fake.unauthorized = True
    with pytest.raises(NotAllowedError, match="does not accept the credentials of context fake: log in again"):
        cluster.items(PODS, core.list_namespaced_pod, "rl")
    cluster.close()


def test_connection_errors_are_one_line_and_exit_code_2(served: Served, herd: Herd, herd_process: Herd) -> None:
    words = ["status", "--release", "herd"]
    for environment, options, part in (
        ({"KUBECONFIG": ""}, [], "no cluster: ~/.kube/config does not exist"),
        ({"KUBECONFIG": "/nowhere"}, [], "KUBECONFIG=/nowhere: no such file"),
        ({}, ["--kubeconfig", "/nowhere"], "/nowhere: no such file"),
        ({}, ["--context", "prod"], "no context prod; available are: fake"),
        ({}, ["--namespace", "empty", "--release", "x"], "no release x in namespace empty; other namespaces have: herd (--namespace rl)"),
    ):
        answer = herd_process(*words, *options, **environment)
        assert (answer.code, answer.output) == (2, ""), answer
        assert part in answer.errors
        assert answer.errors.startswith("herd: ")
        assert answer.errors.count("\n") == 1
    served.fake.forbidden.add(("list", "deployments"))
    answer = herd(*words)
    assert answer.code == 2
    assert answer.errors.startswith('herd: not allowed to list deployments in namespace rl (user jane): this needs verb "list"')
    assert answer.errors.count("\n") == 1


def test_without_the_package_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(preflight, "find_spec", {}.get)
    assert main(["status", "--release", "herd"]) == 2
    assert capsys.readouterr().err == "herd: needs kubernetes: pip install 'herd-rl[kube]'\n"
