"""Checks, without importing them, that the packages of a command are installed."""

from __future__ import annotations

from importlib.util import find_spec

from herd.cli.errors import CommandError

_EXTRA = {
    "torch": "learner",
    "safetensors": "learner",
    "lz4": "learner",
    "zstandard": "learner",
    "matplotlib": "plot",
    "imageio": "plot",
    "jinja2": "plot",
    "kubernetes": "kube",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
}
"""Package -> the extra of herd-rl that brings it."""


def require(*packages: str) -> None:
    """Check that all ``packages`` are installed.

    Raises:
        CommandError: some are missing; the line names them and the command that installs them.

    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        extras = ",".join(dict.fromkeys(_EXTRA[package] for package in missing))
        raise CommandError(f"needs {', '.join(missing)}: pip install 'herd-rl[{extras}]'")
