"""The body of every ``python -m herd_<service>``. It imports almost nothing, so that a request to stop is handled from the first moment."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from herd.service.signals import StopRequest

if TYPE_CHECKING:
    from herd.config.settings import RunSettings
    from herd.topology import ServiceName


def main(service: ServiceName, module: str) -> int:
    """Run the process of ``service``: calls ``run(settings, stop)`` of ``module``, which is imported after the settings were checked.

    Returns the exit code; see `herd.service.startup.run_service`.
    """
    stop = StopRequest()
    from herd.service.startup import run_service  # noqa: PLC0415  after the signal handlers, because reading settings takes part of a second

    def run(settings: RunSettings, stop: StopRequest) -> None:
        import_module(module).run(settings, stop)

    try:
        return run_service(service, run, stop)
    finally:
        stop.end()
