"""A release on a fake API server, for unit tests and whole commands. Without the kubernetes package these tests fail, not skip."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from herd.cli.main import main
from herd.kube.cluster import Cluster, open_cluster
from herd.kube.kubeconfig import Access
from tests.kube.fake_api_server import FakeCluster, serving, write_kubeconfig
from tests.kube.fake_objects import holder_page, learner_page, pod, workload
from tests.patience import patient

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Served:
    """A fake cluster, its address, and a kubeconfig for it."""

    fake: FakeCluster
    address: str
    kubeconfig: Path

    def connect(self, namespace: str | None = None) -> Cluster:
        return open_cluster(Access(self.kubeconfig, None, namespace), {})


def herd_release() -> FakeCluster:
    """Release ``herd`` in namespace ``rl``: two learners, a root, a replica, three actors; and actors of ``other`` in another namespace."""
    frames = itertools.count(1_000, 500)
    pods = [pod(f"herd-learner-{rank}", "learner") for rank in range(2)]
    pods += [pod("herd-paramserver-0", "paramserver"), pod("herd-paramserver-replica-0", "paramserver-replica", restarts=2)]
    pods += [pod(f"herd-actor-5d9f7c-{word}", "actor") for word in ("aaaaa", "bbbbb", "ccccc")]
    elsewhere = workload("Deployment", "actor", 1, release="other", namespace="lab")
    fake = FakeCluster(
        objects={
            "pods": pods,
            "deployments": [workload("Deployment", "actor", 3), elsewhere],
            "statefulsets": [
                workload("StatefulSet", "learner", 2),
                workload("StatefulSet", "paramserver", 1),
                workload("StatefulSet", "paramserver-replica", 1),
            ],
        }
    )
    for rank in range(2):
        fake.pages[f"herd-learner-{rank}"] = lambda rank=rank: learner_page(frames=next(frames), updates=120, rank=rank)  # type: ignore[misc]
    fake.pages["herd-paramserver-0"] = holder_page(updates=119)
    fake.pages["herd-paramserver-replica-0"] = holder_page(updates=118)
    for word, updates in (("aaaaa", 117), ("bbbbb", 116), ("ccccc", 115)):
        fake.pages[f"herd-actor-5d9f7c-{word}"] = holder_page(updates=updates, blocked=1.0)
    return fake


@pytest.fixture
def fake() -> FakeCluster:
    return herd_release()


@pytest.fixture
def served(fake: FakeCluster, tmp_path: Path) -> Iterator[Served]:
    with serving(fake) as address:
        yield Served(fake, address, write_kubeconfig(tmp_path / "kubeconfig", address))


@pytest.fixture
def cluster(served: Served) -> Iterator[Cluster]:
    connected = served.connect()
    yield connected
    connected.close()


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    code: int
    output: str
    errors: str


def command_environment(**more: str) -> dict[str, str]:
    """The environment of a user without a cluster or proxy configured."""
    unwanted = ("HERD_", "KUBE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted) and "proxy" not in name.lower()}
    return kept | {"PYTHONPATH": str(REPOSITORY), "HOME": "/nonexistent", **more}


@pytest.fixture
def herd(served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run ``herd WORDS`` in this process against the fake cluster; starting a process would cost a second each time."""
    for name in [name for name in os.environ if name.startswith("KUBE") or "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")

    def run(*words: str, **environment: str) -> Answer:
        with monkeypatch.context() as patch:
            for name, value in {"KUBECONFIG": str(served.kubeconfig), **environment}.items():
                patch.setenv(name, value)
            code = main(words)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.fixture
def herd_process(served: Served) -> Callable[..., Answer]:
    """Run ``herd WORDS`` in a separate process, as a user does."""

    def run(*words: str, **environment: str) -> Answer:
        environ = command_environment(**{"KUBECONFIG": str(served.kubeconfig), **environment})
        done = subprocess.run(
            [sys.executable, "-m", "herd.cli.main", *words], capture_output=True, text=True, env=environ, timeout=patient(60), check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return run
