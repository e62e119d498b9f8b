"""``python -m benchmarks.soak FILE --minutes 60 --faults 300 --seed 1 --output DIR [--section.key value ...]``."""

from __future__ import annotations

import sys

from benchmarks.soak.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
