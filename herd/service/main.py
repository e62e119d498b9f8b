"""The body of every ``python -m herd_<service>``. It imports almost nothing, so that a request to stop is handled from the first moment."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING

from herd.service.signals import StopRequest

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName
    from herd.config.run import RunSettings
    from herd.service.identity import Identity


def open_streams() -> None:
    """Make the standard streams of this process usable, whatever started it. Herd's own programs call this before anything else.

    A closed descriptor (``>&-``) becomes /dev/null, because otherwise the next socket or file would get its number, and with it what is
    printed. Characters that the encoding of the terminal does not have become question marks.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number, which is this one
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115  for good
        if number and isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="replace")


def main(service: ServiceName, module: str) -> int:
    """Run the process of ``service``: calls ``run(settings, identity, stop)`` of ``module``, imported after both were checked.

    Returns the exit code; see `herd.service.startup.run_service`.
    """
    stop = StopRequest()
    open_streams()
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
