"""``python -m herd.bench``: the same as ``herd bench``."""

import sys

from herd.bench.command import main

sys.exit(main(sys.argv[1:]))
