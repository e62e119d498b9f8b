"""``python -m services.actor --config FILE [--section.key value ...]``."""

from __future__ import annotations

import sys

from herd.process.allocator import ensure_tuned_allocator
from herd.process.startup import StopRequest, fail, parse_settings


def main() -> int:
    """Run one actor until SIGTERM; the exit code is 0, or 2 with one line where the settings cannot work."""
    settings = parse_settings("actor", sys.argv[1:])
    ensure_tuned_allocator("services.actor")
    stop = StopRequest()
    from services.actor.actor import BadInputError, run  # noqa: PLC0415  torch loads only once the settings are known to be good

    try:
        run(settings, stop)
    except BadInputError as error:
        fail("actor", str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
