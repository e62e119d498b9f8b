"""``python -m herd_paramserver --config FILE [--section.key value ...]``."""

import sys

from herd.service.main import main

if __name__ == "__main__":
    sys.exit(main("paramserver", "herd_paramserver.server"))
