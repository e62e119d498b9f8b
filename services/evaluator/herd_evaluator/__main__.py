"""``python -m herd_evaluator --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("evaluator", "herd_evaluator.evaluator"))
