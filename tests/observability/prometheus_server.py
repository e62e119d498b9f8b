"""Prometheus and promtool as Debian ships them: rule tests, and a server on loopback for the duration of a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.patience import patient
from tests.system.whole_runs import free_ports, until

Sample = tuple[dict[str, str], float]
READY_SECONDS = patient(60.0)
QUERY_SECONDS = patient(30.0)


def tool(name: str) -> str:
    """Path of ``prometheus`` or ``promtool`` in this environment or on the system.

    Skips the test if the program is missing, unless TESTS_NEED_PROMETHEUS is set.
    """
    path = shutil.which(name, path=os.pathsep.join((str(Path(sys.prefix) / "bin"), os.environ.get("PATH", ""))))
    if path is None:
        message = f"{name} is not installed: .ci/prometheus puts it into .venv, or install Debian's package prometheus"
        if os.environ.get("TESTS_NEED_PROMETHEUS"):
            pytest.fail(message)
        pytest.skip(message)
    return path


class Server:
    """Prometheus with its own configuration in a temporary folder. Use as a context manager, which removes everything afterwards."""

    def __init__(self, folder: Path, configuration: dict[str, Any]) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._output = folder / "prometheus.out"
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(configuration))
        command = [
            tool("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with self._output.open("w") as stream:
            self._process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, cwd=folder)
        # Proxies from the environment must not be used for loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> Server:
        until(self._is_ready, "Prometheus is ready", seconds=READY_SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()  # its data is not needed any more
        self._process.wait()

    def query(self, expression: str) -> list[Sample]:
        """Evaluate an instant vector or a scalar now. Errors of the query raise ``AssertionError`` with their text."""
        answer = self.ask("query", query=expression)
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in answer["result"]]

    def ask(self, what: str, **parameters: str) -> Any:
        """The data of an answer of Prometheus' API."""
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with self._opener.open(url, timeout=QUERY_SECONDS) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._output.read_text()
        try:
            with self._opener.open(f"{self._url}/-/ready", timeout=QUERY_SECONDS):
                return True
        except OSError:
            return False
