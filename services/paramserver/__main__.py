"""``python -m services.paramserver --config FILE [--section.key value ...]``."""

from __future__ import annotations

import sys

from herd.process.startup import StopRequest, fail, parse_settings


def main() -> int:
    """Serve until SIGTERM; the exit code is 0, or 2 with one line where settings or addresses cannot work."""
    settings = parse_settings("paramserver", sys.argv[1:])
    stop = StopRequest()
    from services.paramserver.server import BadInputError, run  # noqa: PLC0415  bad settings are answered before sockets are loaded

    try:
        run(settings, stop)
    except BadInputError as error:
        fail("paramserver", str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
