"""``python -m herd_replay --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("replay", "herd_replay.server"))
