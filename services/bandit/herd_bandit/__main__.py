"""``python -m herd_bandit --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("bandit", "herd_bandit.server"))
