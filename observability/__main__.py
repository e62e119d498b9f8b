"""Writes the dashboard that the chart contains: ``python -m observability [FILE]``."""

from __future__ import annotations

import sys
from pathlib import Path

from observability.dashboard import dashboard_json

FILE = Path(__file__).parents[1] / "helm" / "herd" / "files" / "herd-dashboard.json"

if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    path.write_text(dashboard_json(), encoding="utf-8")
