"""The end of a run in a cluster, against a small API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from herd.telemetry.run_end import ApiError, Workloads, main, own_workloads, remove_finished
from herd.telemetry.telemetry import COPY_IS_INCOMPLETE, RUN_IS_OVER

LEARNERS = {"a": ["http://a-0", "http://a-1"], "b": ["http://b-0"]}
OTHERS = ["deployments/actor", "statefulsets/replay"]
OVER = {url: RUN_IS_OVER for urls in LEARNERS.values() for url in urls}


def learner(**status: object) -> dict[str, Any]:
    settled = {"observedGeneration": 2, "currentRevision": "x", "updateRevision": "x"}
    return {"metadata": {"generation": 2, "resourceVersion": "77"}, "status": settled | status}


class Cluster:
    """The objects of a namespace, served as an API server does."""

    def __init__(self) -> None:
        self.objects = {"statefulsets/a": learner(), "statefulsets/b": learner(), **{name: {"metadata": {}} for name in OTHERS}}
        self.status: int | None = None
        self.tokens: set[str | None] = set()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def workloads(cluster: Cluster) -> Iterator[Workloads]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 20

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self, status: int, body: object = None) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self) -> None:
            cluster.tokens.add(self.headers["Authorization"])
            name = self.path.removeprefix("/ns/")
            self._answer(cluster.status or (200 if name in cluster.objects else 404), cluster.objects.get(name))

        def do_DELETE(self) -> None:
            options = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = cluster.objects.get(name := self.path.removeprefix("/ns/"))
            wanted = options.get("preconditions", {}).get("resourceVersion")
            if found is None or (wanted and wanted != found["metadata"]["resourceVersion"]):
                return self._answer(404 if found is None else 409)
            del cluster.objects[name]
            assert options["propagationPolicy"] == "Background"
            return self._answer(200, {"kind": "Status"})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Workloads(f"http://127.0.0.1:{server.server_port}/ns", "secret")
    server.shutdown()
    thread.join()
    server.server_close()


def remove(workloads: Workloads, lines: dict[str, str], *, keeps_learners: bool = False, needs_copy: bool = False) -> set[str]:
    """Look once, while the learners answer with ``lines``."""
    rules = {"keeps_learners": keeps_learners, "needs_copy": needs_copy}
    return set(remove_finished(workloads, LEARNERS, OTHERS, **rules, readiness=lambda url: lines.get(url.removesuffix("/readyz"))))


@pytest.mark.parametrize("silent", [{"http://a-1", "http://b-0"}, set(OVER)])
def test_nothing_goes_while_a_shard_of_each_agent_trains_or_is_silent(workloads: Workloads, cluster: Cluster, silent: set[str]) -> None:
    assert remove(workloads, {url: line for url, line in OVER.items() if url not in silent}) == set()
    assert remove(workloads, dict.fromkeys(OVER, "ready")) == set()
    assert len(cluster.objects) == 4
    assert cluster.tokens == {"Bearer secret"}


def test_an_agent_that_has_ended_frees_its_learner_and_the_last_one_everything(workloads: Workloads, cluster: Cluster) -> None:
    assert remove(workloads, OVER | {"http://b-0": "ready"}) == {"statefulsets/a"}
    assert remove(workloads, OVER) == {*OTHERS, "statefulsets/b"}
    assert cluster.objects == {}
    assert remove(workloads, OVER) == set()


def test_what_a_call_could_not_finish_the_next_one_does(workloads: Workloads, cluster: Cluster) -> None:
    del cluster.objects[OTHERS[0]]
    assert remove(workloads, OVER, keeps_learners=True) == {OTHERS[1]}
    assert remove(workloads, OVER, keeps_learners=True) == set()
    assert set(cluster.objects) == {"statefulsets/a", "statefulsets/b"}


def test_a_learner_without_a_volume_stays_until_its_copy_is_complete(workloads: Workloads) -> None:
    failed = OVER | {"http://a-0": f"{RUN_IS_OVER}, but {COPY_IS_INCOMPLETE}"}
    assert remove(workloads, failed, needs_copy=True) == {*OTHERS, "statefulsets/b"}
    assert remove(workloads, failed) == {"statefulsets/a"}  # its files are on a volume too


@pytest.mark.parametrize("status", [{"updateRevision": "y"}, {"observedGeneration": 1}])
def test_a_learner_in_the_middle_of_an_upgrade_is_left_alone(workloads: Workloads, cluster: Cluster, status: dict[str, object]) -> None:
    """Its old pod may report the end of the run that the upgrade continues."""
    cluster.objects["statefulsets/a"] = learner(**status)
    assert remove(workloads, OVER) == {"statefulsets/b"}


def test_a_learner_that_changed_since_it_was_read_is_left_alone(workloads: Workloads) -> None:
    assert not workloads.delete("statefulsets/a", "76")
    assert workloads.delete("statefulsets/a", "77")


def test_an_api_server_that_refuses_is_one_line(
    workloads: Workloads, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.status = 403
    with pytest.raises(ApiError, match="the API server answered 403 to GET statefulsets/a"):
        remove(workloads, OVER)
    with pytest.raises(ApiError, match="does not answer"):
        Workloads("http://127.0.0.1:1/ns", "").read("statefulsets/a")
    with pytest.raises(ApiError, match="not in a pod"):
        own_workloads({}, tmp_path)
    assert main(["--learner", "a=http://a"]) == 1
    assert capsys.readouterr().err.startswith("run_end: not in a pod with a service account's token")
