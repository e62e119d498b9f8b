"""``helm test`` of a release that does not work, with both Helms, the fake API server and the self-test's own process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helm.tools.fetch_tools import ENGINES, helm_program
from tests.helm.rendering import CHART, helm
from tests.kube.fake_api_server import FakeCluster, serving, write_kubeconfig
from tests.kube.fake_controllers import Node
from tests.patience import patient

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failed_self_test_names_the_cause_and_keeps_its_pod(engine: str, tmp_path: Path) -> None:
    helm(engine, "version")  # fetches Helm, or skips with the chart's other tests
    fake = FakeCluster()
    with serving(fake) as address:
        environ = {"KUBECONFIG": str(write_kubeconfig(tmp_path / "kubeconfig", address)), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = [str(helm_program(engine)), *words, "--namespace", "rl"]
            return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=patient(200), check=False)

        installed = run("install", "herd", str(CHART), "--set", "selfTest.timeoutSeconds=10")
        assert installed.returncode == 0, installed.stderr
        with Node(fake, "herd-test"):
            tested = run("test", "herd")
        assert tested.returncode != 0
        assert "herd-test failed" in tested.stderr
        # No service answers, because the addresses exist only in a cluster.
        line = "not ready: http://herd-learner-0.herd-learner:9400, http://herd-paramserver:9400"
        assert fake.logs["herd-test"] == [line]
        if engine != "3.17":  # this version needs --logs
            assert line in tested.stdout + tested.stderr
        removed = run("uninstall", "herd")
        assert removed.returncode == 0, removed.stderr
        assert [item["metadata"]["name"] for item in fake.objects["pods"]] == ["herd-test"]
