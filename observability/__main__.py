"""Writes the dashboard that the chart contains: ``python -m observability``."""

from __future__ import annotations

from pathlib import Path

from observability.dashboard import dashboard_json

FILE = Path(__file__).parents[1] / "helm" / "herd" / "files" / "herd-dashboard.json"

if __name__ == "__main__":
    FILE.write_text(dashboard_json(), encoding="utf-8")
