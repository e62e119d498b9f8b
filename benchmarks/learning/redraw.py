"""Draws everything again from the raw data: ``python -m benchmarks.learning.redraw``.

Reads the results of every suite and label (``<suite>-<label>.json``), and the published curves in ``benchmarks/data``. Writes the table and
the picture of each, the table of all, and ``scores.json.gz``: every curve, ours and others', as one list of
``{task, method, seed, protocol, xs, ys}``, with env frames and mean returns. This is the form in which DreamerV3 publishes its scores, so
that tools for one read the other.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.learning.__main__ import RESULTS, show
from benchmarks.learning.results import tried
from benchmarks.learning.suites import others_curves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Draw the results of a folder again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.redraw", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR", help="where results are")
    folder = parser.parse_args(argv).output
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    for report in reports:
        show(report, folder)
    (folder / "README.md").write_text(tried(folder))
    # Without a time in its header, equal data make an equal file.
    (folder / "scores.json.gz").write_bytes(gzip.compress(json.dumps(scores(reports)).encode(), mtime=0))
    print(f"{len(reports)} results in {folder}")


def scores(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the curves of the reports' runs and, of their games, those of others; these are means over seeds, so their seed is null."""
    curves = [
        {
            "task": f"atari_{run['game']}",
            "method": f"herd-{report['suite']}-{report['label']}",
            "seed": run["seed"],
            "protocol": report.get("protocol"),
            "xs": [frames for frames, _, _ in run["curve"]],
            "ys": [score for _, _, score in run["curve"]],
        }
        for report in reports
        for run in report["runs"]
    ]
    for game in dict.fromkeys(run["game"] for report in reports for run in report["runs"]):
        curves += [
            {
                "task": f"atari_{game}",
                "method": curve.name,
                "seed": None,
                "protocol": "dopamine",
                "xs": list(curve.env_frames),
                "ys": list(curve.returns),
            }
            for curve in others_curves(game)
        ]
    return curves


if __name__ == "__main__":
    main()
