"""Runs the real ``helm`` (3.17 or newer, or 4) on one release."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.cluster_settings import ClusterSettings

_MARGIN_SECONDS = 60
"""Helm ends by its own --timeout. If it runs this much longer, something else is wrong."""


class HelmError(Exception):
    """Helm's exit code was not 0; the message has its output."""


class HelmRelease:
    """One release in one namespace."""

    def __init__(self, settings: ClusterSettings, name: str, namespace: str, folder: Path) -> None:
        self._settings = settings
        self.name = name
        self.namespace = namespace
        self._folder = folder

    def install(self, values: Mapping[str, Any]) -> None:
        """Install, and wait until everything is ready if pods can run here."""
        self._run("install", self.name, str(self._settings.chart), *self._values(values), *self._wait(), *self._timeout())

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Upgrade to other values, and wait."""
        self._run("upgrade", self.name, str(self._settings.chart), *self._values(values), *self._wait(), *self._timeout())

    def rollback(self, revision: int, *, force_conflicts: bool = False) -> None:
        """Roll back to an earlier revision, and wait. ``force_conflicts`` (Helm 4) also overwrites fields that another client owns."""
        force = ["--force-conflicts"] if force_conflicts else []
        self._run("rollback", self.name, str(revision), *force, *self._wait(), *self._timeout())

    def major(self) -> int:
        """Helm's major version: 3 or 4."""
        return int(self._run("version", "--template", "{{.Version}}").removeprefix("v").partition(".")[0])

    def status(self) -> str:
        """Status of the newest revision, such as deployed or failed."""
        return str(yaml.safe_load(self._run("status", self.name, "--output", "yaml"))["info"]["status"])

    def test(self) -> str:
        """Run the chart's own tests and return what they printed."""
        return self._run("test", self.name, *self._timeout())

    def uninstall(self) -> None:
        """Uninstall, and wait for the pods that are still ending when helm returns."""
        self._run("uninstall", self.name, *self._wait(), *self._timeout())

    def template(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Render the chart without a cluster."""
        text = self._run("template", self.name, str(self._settings.chart), *self._values(values))
        return [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]

    def _values(self, values: Mapping[str, Any]) -> list[str]:
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        more = ["--values", str(self._settings.more_values)] if self._settings.more_values is not None else []
        return ["--values", str(file), *more]

    def _wait(self) -> list[str]:
        return ["--wait"] if self._settings.processes else []

    def _timeout(self) -> list[str]:
        return ["--timeout", f"{self._settings.timeout_seconds:.0f}s"]

    def _run(self, *words: str) -> str:
        context = ["--kube-context", self._settings.context] if self._settings.context else []
        done = subprocess.run(
            [self._settings.helm, *words, "--namespace", self.namespace, *context],
            capture_output=True,
            text=True,
            timeout=self._settings.timeout_seconds + _MARGIN_SECONDS,
            check=False,
            env={**os.environ, "KUBECONFIG": self._settings.kubeconfig},
        )
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout
