"""Distributed reinforcement learning as message-passing services: the library that the services share. It imports no service.

For scripts and notebooks (docs/python-api.md):

- `train` trains like ``herd train``, and returns the `Run`;
- `load_run` opens a run directory: settings, metrics, report, checkpoints;
- `load_policy` loads the policy of a run to choose actions;
- `debug` trains in this process and thread, where breakpoints work.

``import herd`` is cheap: each of these loads its dependencies on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.api.debugging import debug
    from herd.api.playing import load_policy
    from herd.api.runs import Run, RunError, load_run
    from herd.api.training import train
    from herd.config.errors import SettingsError
    from herd.evaluation.policy import TrainedPolicy

    __version__: str

__all__ = ["Run", "RunError", "SettingsError", "TrainedPolicy", "__version__", "debug", "load_policy", "load_run", "train"]

_MODULES = {
    "Run": "herd.api.runs",
    "RunError": "herd.api.runs",
    "SettingsError": "herd.config.errors",
    "TrainedPolicy": "herd.evaluation.policy",
    "debug": "herd.api.debugging",
    "load_policy": "herd.api.playing",
    "load_run": "herd.api.runs",
    "train": "herd.api.training",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  only where asked for

        return version("herd-rl")
    if name not in _MODULES:
        raise AttributeError(f"module 'herd' has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
