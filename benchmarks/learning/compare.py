"""Compares labels of a suite: ``python -m benchmarks.learning.compare --suite laser none half trust``.

Reads the results that ``python -m benchmarks.learning`` wrote, and writes ``<suite>-compared.md`` and ``.png`` beside them: mean returns at
the end, and curves over frames. Intervals are 95 % bootstrap intervals over seeds, from three seeds on.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.intervals import curve_estimates, estimate, windowed
from benchmarks.learning.__main__ import RESULTS
from benchmarks.learning.results import MIN_SEEDS, RunResult, protocol_of, row, run_result_from_json
from benchmarks.learning.suites import SUITES, others_curves
from benchmarks.pictures import plain
from herd.view.plots.figure import drawn_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WINDOWS = 30
_COLOURS = ("#999999", "#56B4E9", "#E69F00", "#D55E00", "#0072B2", "#009E73", "#CC79A7")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=list(SUITES), required=True)
    parser.add_argument("labels", nargs="+", metavar="LABEL", help="of results to compare, in this order")
    options = parser.parse_args()
    if len(options.labels) > len(_COLOURS):
        parser.error(f"at most {len(_COLOURS)} labels can be told apart by colour")
    runs, protocols = {}, {}
    for label in options.labels:
        path = RESULTS / f"{options.suite}-{label}.json"
        if not path.is_file():
            parser.error(
                f"{options.suite} has no results {label}: python -m benchmarks.learning --suite {options.suite} --label {label} ..."
            )
        report = json.loads(path.read_text(encoding="utf-8"))
        runs[label] = [run_result_from_json(run) for run in report["runs"]]
        protocols[label] = protocol_of(report)
    if len(set(protocols.values())) > 1:
        parser.error(f"their games differ: {'; '.join(f'{label}: {protocol}' for label, protocol in protocols.items())}")
    text = f"{protocols[options.labels[0]]}\n\n{table(runs)}"
    (RESULTS / f"{options.suite}-compared.md").write_text(f"# {options.suite}: {', '.join(options.labels)}\n\n{text}")
    draw(runs, RESULTS / f"{options.suite}-compared.png")
    print(text)


def games_of(runs: Mapping[str, Sequence[RunResult]]) -> list[str]:
    """Return the games that any label has, in the order of their suite."""
    return list(dict.fromkeys(run.game for results in runs.values() for run in sorted(results, key=lambda run: run.seed)))


def table(runs: Mapping[str, Sequence[RunResult]]) -> str:
    """Return the mean return at the end of each label and game, with its interval and the number of seeds."""
    games = games_of(runs)
    lines = [row(["mean return at the end (95 % interval; seeds)", *games]), row(["---"] * (1 + len(games)))]
    for label, results in runs.items():
        cells = []
        for game in games:
            returns = [run.last_return for run in results if run.game == game]
            if len(returns) < MIN_SEEDS:
                cells.append(", ".join(f"{each:,.1f}" for each in returns) or "-")
                continue
            one = estimate(returns)
            cells.append(f"{one.mean:,.1f} ({one.low:,.1f} to {one.high:,.1f}; {len(returns)})")
        lines.append(row([label, *cells]))
    return "\n".join(lines) + "\n"


def draw(runs: Mapping[str, Sequence[RunResult]], path: Path) -> None:
    """Draw one panel per game, with the mean curve of each label over the frames that all its runs have."""
    games = games_of(runs)
    with drawn_to(path, (1.0 + 4.2 * len(games), 3.8)) as figure:
        for axes, game in zip(figure.subplots(1, len(games), squeeze=False)[0], games, strict=True):
            longest = 0.0
            for (label, results), colour in zip(runs.items(), _COLOURS, strict=False):
                own = [run for run in results if run.game == game]
                if not own:
                    continue
                total = min(run.env_frames for run in own)
                longest = max(longest, total)
                curves = np.stack([_windows(run, total) for run in own])
                millions = (np.arange(WINDOWS) + 0.5) / WINDOWS * total / 1e6
                axes.plot(millions, curves.mean(axis=0), color=colour, label=f"{label} ({len(own)})")
                if len(own) >= MIN_SEEDS:
                    bands = curve_estimates(curves)
                    axes.fill_between(millions, [band.low for band in bands], [band.high for band in bands], color=colour, alpha=0.15, lw=0)
            for curve in others_curves(game):
                if curve.name == "Rainbow (nature)" and (value := curve.at(longest)) is not None:
                    axes.axhline(value, color="black", linestyle="--", linewidth=1.0, label=f"{curve.name} at {longest / 1e6:.3g} M")
            axes.set_title(game)
            plain(axes, "env frames (millions)")
            axes.set_ylabel("return, last 100 games")
            axes.set_xlim(left=0.0)
            axes.legend(loc="best", frameon=False, fontsize=8, title="label (seeds)")


def _windows(run: RunResult, total: float) -> np.ndarray:
    frames, _, returns = (np.array(values, np.float64) for values in zip(*run.curve, strict=True))
    return windowed(frames, returns, total=total, windows=WINDOWS)


if __name__ == "__main__":
    main()
