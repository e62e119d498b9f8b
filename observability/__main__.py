"""Writes the files that the chart contains: ``python -m observability [FOLDER]``, by default ``helm/herd/files``."""

from __future__ import annotations

import sys
from pathlib import Path

from observability import alerts, recording
from observability.dashboard import dashboard_json
from observability.rules import rule_file

FOLDER = Path(__file__).parents[1] / "helm" / "herd" / "files"


def render() -> dict[str, str]:
    """Every generated file, by name."""
    return {
        "herd-dashboard.json": dashboard_json(),
        "recording-rules.yaml": rule_file(recording.GROUPS),
        "alert-rules.yaml": rule_file(alerts.GROUPS),
    }


def main(arguments: list[str]) -> None:
    """Write them."""
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
