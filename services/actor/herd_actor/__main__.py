"""``python -m herd_actor --config FILE [--section.key value ...]``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from herd.service.signals import StopRequest

if TYPE_CHECKING:
    from herd.config.settings import RunSettings


def main() -> int:
    """Run one actor until SIGTERM. See ``run_service`` for the exit code."""
    stop = StopRequest()
    from herd.service.startup import run_service  # noqa: PLC0415  after the signals: reading settings takes part of a second

    return run_service("actor", _run, stop, tuned_allocator=True)


def _run(settings: RunSettings, stop: StopRequest) -> None:
    from herd_actor.actor import run  # noqa: PLC0415  torch loads only once the settings are known to be good

    run(settings, stop)


if __name__ == "__main__":
    sys.exit(main())
