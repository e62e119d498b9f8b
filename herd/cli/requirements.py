"""Are the packages there that a command is going to need? Asked before anything is started, and without importing them."""

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
    """Check that all ``packages`` can be imported.

    Raises:
        CommandError: names what is missing and the command that installs it.

    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        extras = ",".join(dict.fromkeys(_EXTRA[package] for package in missing))
        raise CommandError(f"needs {', '.join(missing)}: pip install 'herd-rl[{extras}]'")
