"""The body of every ``python -m herd_<service>``. It imports almost nothing, so that a request to stop is handled from the first moment."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from herd.service.signals import StopRequest

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName
    from herd.config.run import RunSettings
    from herd.service.identity import Identity


def main(service: ServiceName, module: str) -> int:
    """Run the process of ``service``: calls ``run(settings, identity, stop)`` of ``module``, imported after both were checked.

    Returns the exit code; see `herd.service.startup.run_service`.
    """
    stop = StopRequest()
    from herd.service.startup import run_service  # noqa: PLC0415  after the signal handlers, because reading settings takes part of a second

    def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
        import_module(module).run(settings, identity, stop)

    from herd.components.user_code import leave  # noqa: PLC0415  as above

    try:
        code = run_service(service, run, stop)
    except BaseException as error:
        stop.end()
        leave(error)
        raise
    stop.end()
    leave(None, code)
    return code
