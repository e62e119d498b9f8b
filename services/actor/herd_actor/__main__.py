"""``python -m herd_actor --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("actor", "herd_actor.actor"))
