"""``python -m herd_learner --config FILE [--section.key value ...]``."""

import os

from herd.service.main import main

if __name__ == "__main__":
    # A shard that waits for the others says so itself, in a line. torch's own libraries print a stack trace at every attempt; whoever wants
    # that sets the variable (WARNING). It is read when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    try:
        exit_code = main("learner", "herd_learner.loop")
    except SystemExit as error:
        exit_code = int(error.code or 0)
    # Everything is written, so skip Python's own shutdown. A thread of gloo may still have to release a tensor, for which it needs the
    # interpreter's lock; during the shutdown that would abort the process.
    os._exit(exit_code)
