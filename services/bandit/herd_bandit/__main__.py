"""``python -m herd_bandit --config FILE [--section.key value ...]``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from herd.service.signals import StopRequest

if TYPE_CHECKING:
    from herd.config.settings import RunSettings


def main() -> int:
    """Serve until SIGTERM. See ``run_service`` for the exit code."""
    stop = StopRequest()
    from herd.service.startup import run_service  # noqa: PLC0415  after the signals: reading settings takes part of a second

    return run_service("bandit", _run, stop)


def _run(settings: RunSettings, stop: StopRequest) -> None:
    from herd_bandit.server import run  # noqa: PLC0415  bad settings are answered before sockets are loaded

    run(settings, stop)


if __name__ == "__main__":
    sys.exit(main())
