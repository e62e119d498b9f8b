"""What a run left behind: its figures, its curve, and where they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from herd.supervisor.view import clock, count

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

REPORT = "report.json"
CURVE = "curve.png"
CHECKPOINTS = "checkpoints"
_NAME_WIDTH = 16
"""Fits the longest names of games."""


def draw_curve(run_dir: Path) -> str | None:
    """Draw RUN/curve.png; returns why that was not possible, or None."""
    try:
        from herd.plots.curves import plot_runs  # noqa: PLC0415  matplotlib is optional and takes a second to load
        from herd.plots.history import PlotError  # noqa: PLC0415
    except ImportError as error:
        return f"needs {error.name}: pip install 'herd-rl[plot]'"
    try:
        plot_runs([run_dir], run_dir / CURVE)
    except ImportError as error:
        return f"needs {error.name}: pip install 'herd-rl[plot]'"
    except PlotError as error:
        return str(error)
    return None


def print_summary(console: Console, run_dir: Path, curve_problem: str | None) -> None:
    """Print the report's figures and the paths of report, curve and newest checkpoint."""
    try:
        report: dict[str, Any] = json.loads((run_dir / REPORT).read_text())
    except (OSError, ValueError):
        report = {}
    for name, value in [*_figures(report), *_paths(run_dir, curve_problem)]:
        # Lines, not a table: a path broken at the terminal's edge could not be copied.
        console.print(f"{name:<{_NAME_WIDTH}}  {value}", markup=False, highlight=False, soft_wrap=True)


def _figures(report: dict[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if not report:
        return rows
    rows.append(("env frames", f"{count(report.get('env_frames', 0))} in {clock(report.get('wall_seconds', 0.0))}"))
    rows.append(("frames/s", f"{report.get('frames_per_second', 0.0):,.0f} ({report.get('learner_updates', 0):,} updates)"))
    lag = report.get("policy_lag", {}).get("mean")
    if lag is not None:
        rows.append(("policy lag", f"{lag:.1f} updates"))
    for name, task in report.get("tasks", {}).items():
        score = task.get("episode_return", {})
        mean = score.get("mean_last_100")
        shown = "no game ended" if mean is None else f"{mean:,.2f} (mean return of the last 100 of {score.get('episodes', 0):,} games)"
        rows.append((name, shown))
    return rows


def _paths(run_dir: Path, curve_problem: str | None) -> list[tuple[str, str]]:
    report, curve = run_dir / REPORT, run_dir / CURVE
    checkpoints = sorted(path for path in (run_dir / CHECKPOINTS).glob("[0-9]*") if path.is_dir())
    return [
        ("report", str(report) if report.is_file() else "none: the learner did not reach its end, or could not write it"),
        ("curve", str(curve) if curve_problem is None else f"none: {curve_problem}"),
        ("checkpoint", str(checkpoints[-1]) if checkpoints else "none"),
    ]
