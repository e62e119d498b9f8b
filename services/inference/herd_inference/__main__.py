"""``python -m herd_inference --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("inference", "herd_inference.server"))
