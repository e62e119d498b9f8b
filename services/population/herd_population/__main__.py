"""``python -m herd_population --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("population", "herd_population.server"))
