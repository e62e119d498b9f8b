"""``python -m herd_learner --config FILE [--section.key value ...]``."""

import os
import sys

from herd.service.main import main

if __name__ == "__main__":
    # A shard that waits for the others says so itself, in a line. torch's own libraries print a stack trace at every attempt; whoever wants
    # that sets the variable (WARNING). It is read when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    sys.exit(main("learner", "herd_learner.learner"))
