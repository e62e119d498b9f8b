"""``python -m herd_learner --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("learner", "herd_learner.learner"))
