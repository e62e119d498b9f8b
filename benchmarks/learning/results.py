"""The results of a recipe, computed from its runs' curves, and the tables made of them."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.learning.suites import SUITES, others_curves, others_levels
from herd.components.suites.atari import atari_scores
from herd.components.suites.scores import aggregates, human_normalised, interquartile_mean
from herd.evaluation.intervals import percentiles, resampled_run_scores
from herd.sweeps.summary import final_return

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from herd.components.suites.scores import ReferenceScores
    from herd.evaluation.protocols import TrainingScore

    FloatArray = NDArray[np.float64]


MIN_SEEDS = 3
"""With fewer, an interval over seeds says nothing."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The first point of a curve at or above a level."""

    level: float
    env_frames: float
    minutes: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one seed on one game."""

    game: str
    seed: int
    env_frames: float
    minutes: float
    frames_per_second: float
    """Mean over the whole run."""
    last_return: float
    """As the protocol counts games of training. If it counts none: mean of the last million frames (of the last quarter, in runs shorter
    than four millions) of the curve."""
    highest: float
    reached: tuple[Reached, ...]
    """The levels that were reached."""
    evaluation: float | None
    """Mean return of whole games of the last checkpoint; None if they were not played."""
    curve: tuple[tuple[float, float, float], ...]
    """(env frames, minutes, mean return of the last 100 games), thinned."""
    processor: str
    """Of the machine that trained it."""
    date: str
    """On which it began, as 2026-11-24."""
    games: int | None = None
    """Number of games in ``last_return``; None if it is the curve's."""


def run_result(
    game: str,
    seed: int,
    *,
    env_frames: FloatArray,
    wall_seconds: FloatArray,
    returns: FloatArray,
    levels: Sequence[float],
    evaluation: float | None,
    processor: str,
    date: str,
    counted: TrainingScore | None = None,
    points: int = 200,
) -> RunResult:
    """Compute a result from the points of a curve, [P] each; returns are NaN before the first game ended. ``counted``: as the protocol
    counts games of training.

    Raises:
        ValueError: no game ended.
    """
    known = np.isfinite(returns)
    if not known.any():
        raise ValueError(f"{game}, seed {seed}: no game ended, so there is no curve")
    frames, minutes, scores = env_frames[known], wall_seconds[known] / 60.0, returns[known]
    total = float(env_frames[-1])
    reached = []
    for level in levels:
        there = np.flatnonzero(scores >= level)
        if len(there):
            reached.append(Reached(level, float(frames[there[0]]), float(minutes[there[0]])))
    kept = np.unique(np.linspace(0, len(frames) - 1, min(points, len(frames))).astype(int))
    return RunResult(
        game=game,
        seed=seed,
        env_frames=total,
        minutes=float(wall_seconds[-1]) / 60.0,
        frames_per_second=total / float(wall_seconds[-1]),
        last_return=final_return(env_frames, returns) if counted is None else counted.mean,
        highest=float(scores.max()),
        reached=tuple(reached),
        evaluation=evaluation,
        curve=tuple((float(frames[i]), float(minutes[i]), float(scores[i])) for i in kept),
        processor=processor,
        date=date,
        games=None if counted is None else counted.episodes,
    )


def run_result_from_json(fields: Mapping[str, Any]) -> RunResult:
    """Return a result of a report that `as_json` made and a file kept."""
    reached = tuple(Reached(**each) for each in fields["reached"])
    curve = tuple((frames, minutes, score) for frames, minutes, score in fields["curve"])
    return RunResult(**{**fields, "reached": reached, "curve": curve})


def median_reached(results: Sequence[RunResult], level: float) -> tuple[float | None, float | None, int]:
    """Return the median env frames and minutes to a level, and how many seeds reached it; None if fewer than half of them did.

    A seed that did not reach it counts as later than all others.
    """
    found = [next((each for each in result.reached if each.level == level), None) for result in results]
    frames = statistics.median_high(float("inf") if each is None else each.env_frames for each in found)
    minutes = statistics.median_high(float("inf") if each is None else each.minutes for each in found)
    number = sum(each is not None for each in found)
    return (None, None, number) if frames == float("inf") else (frames, minutes, number)


def normalised(results: Sequence[RunResult], references: Mapping[str, ReferenceScores]) -> dict[str, Any]:
    """Return human-normalised scores: median over games of the seeds' mean, and interquartile mean over all runs; empty without
    references. If all games have the same number of seeds, at least three, ``intervals`` holds their 95 % intervals: bootstrap over seeds,
    stratified by game.
    """
    known = [result for result in results if result.game in references]
    if not known:
        return {}
    games = list(dict.fromkeys(result.game for result in known))
    scores = {game: [human_normalised(run.last_return, references[game]) for run in known if run.game == game] for game in games}
    found: dict[str, Any] = {
        "median": statistics.median(float(np.mean(own)) for own in scores.values()),
        "interquartile_mean": float(interquartile_mean(np.concatenate(list(scores.values()), axis=None))),
    }
    if len({len(own) for own in scores.values()}) == 1 and len(known) >= MIN_SEEDS * len(games):
        returns = [[np.array([run.last_return]) for run in known if run.game == game] for game in games]
        resampled = aggregates(resampled_run_scores(returns), [references[game] for game in games])
        found["intervals"] = {statistic: percentiles(resampled[statistic]) for statistic in found}
    return found


def others_normalised(games: Sequence[str], env_frames: float, references: Mapping[str, ReferenceScores]) -> dict[str, dict[str, float]]:
    """Return the same of published means at equal frames, by agent, for agents with all games. Their interquartile mean is over games."""
    found: dict[str, list[float]] = {}
    for game in games:
        for curve in others_curves(game):
            value = curve.at(env_frames)
            if value is not None and game in references:
                found.setdefault(curve.name, []).append(float(human_normalised(value, references[game])))
    whole = {name: scores for name, scores in found.items() if len(scores) == len(games)}
    return {
        name: {"median": statistics.median(scores), "interquartile_mean": float(interquartile_mean(scores))}
        for name, scores in whole.items()
    }


def as_json(results: Sequence[RunResult], **about: Any) -> dict[str, Any]:
    """Return the report: ``about`` (suite, label, overrides, command, hardware, ...), summaries by game, and every run."""
    levels = SUITES[about["suite"]].levels
    games = list(dict.fromkeys(result.game for result in results))
    summaries: dict[str, Any] = {}
    for game in games:
        own = [result for result in results if result.game == game]
        summaries[game] = {
            "seeds": len(own),
            "median_last_return": statistics.median(result.last_return for result in own),
            "lowest_last_return": min(result.last_return for result in own),
            "highest_last_return": max(result.last_return for result in own),
            "median_minutes": statistics.median(result.minutes for result in own),
            "median_frames_per_second": statistics.median(result.frames_per_second for result in own),
            "reached": {f"{level:g}": median_reached(own, level) for level in levels},
        }
    return {**about, "games": summaries, "runs": [asdict(result) for result in results]}


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report's tables, with what others have published beside them."""
    runs = [run_result_from_json(run) for run in report["runs"]]
    lines = [f"# {report['suite']}, {report['label']}, {protocol_of(report)}", ""]
    lines += [f"{'; '.join(_machines(report['runs']))}. `{_command(report)}`. Changed settings: {_changes(report)}.", ""]
    levels = [f"{level:g}" for level in SUITES[report["suite"]].levels]
    head = ["game", "seeds", "return at the end, median (lowest to highest)", "evaluation, median", "minutes", "frames/s"]
    head += [f"{level} reached" for level in levels]
    lines += [row(head), row(["---"] * len(head))]
    for game, one in report["games"].items():
        reached = [_reached(one["reached"][level], one["seeds"]) for level in levels]
        played = [run["evaluation"] for run in report["runs"] if run["game"] == game and run["evaluation"] is not None]
        last = f"{one['median_last_return']:,.1f}"
        if one["seeds"] > 1:
            last += f" ({one['lowest_last_return']:,.1f} to {one['highest_last_return']:,.1f})"
        if any(counted := [run.games for run in runs if run.game == game]):
            last += f"; {', '.join('-' if number is None else f'{number:,}' for number in counted)} games"
        cells = [last, f"{statistics.median(played):,.1f}" if played else "-"]
        cells += [f"{one['median_minutes']:.1f}", f"{one['median_frames_per_second']:,.0f}"]
        lines.append(row([game, str(one["seeds"]), *cells, *reached]))
    if any(run.games for run in runs):
        what = "The return at the end of a seed is the mean of the games that the protocol counts, as many as stated"
        lines += ["", f"{what}; where a seed has -, it is the mean of the last million frames of the curve."]
    for game in report["games"]:
        frames = min(run.env_frames for run in runs if run.game == game)
        others = [f"{curve.name} {value:,.1f}" for curve in others_curves(game) if (value := curve.at(frames)) is not None]
        anchors = [f"{each.name} {each.level:g} at {each.env_frames / 1e6:g} M" for each in others_levels(game)]
        if others or anchors:
            lines += ["", f"Others on {game} at equal frames, dopamine protocol: {', '.join([*others, *anchors])}."]
    if ours := normalised(runs, atari_scores()):
        lines += ["", row(["human-normalised", "median", "interquartile mean"]), row(["---"] * 3)]
        frames = min(run.env_frames for run in runs)
        published = others_normalised(list(report["games"]), frames, atari_scores()) if len(report["games"]) > 1 else {}
        named = {f"**Herd**, {protocol_of(report)}": ours, **{f"{name}, dopamine protocol": one for name, one in published.items()}}
        best_first = sorted(named.items(), key=lambda each: each[1]["interquartile_mean"], reverse=True)
        lines += [row([name, *(_percent(one, statistic) for statistic in ("median", "interquartile_mean"))]) for name, one in best_first]
    return "\n".join(lines) + "\n"


def _percent(scores: Mapping[str, Any], statistic: str) -> str:
    """Return a score, with its interval if it has one."""
    text = f"{100 * scores[statistic]:.1f} %"
    if "intervals" not in scores:
        return text
    low, high = scores["intervals"][statistic]
    return f"{text} ({100 * low:.1f} to {100 * high:.1f})"


def protocol_of(report: Mapping[str, Any]) -> str:
    """Return how the games of a report were played; scores of two protocols must not be compared."""
    return f"{name} protocol" if (name := report.get("protocol")) else "no protocol (the recipe's games)"


def _machines(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each machine with its seeds and dates, in the order of the seeds."""
    lines = []
    for processor in dict.fromkeys(run["processor"] for run in runs):
        own = [run for run in runs if run["processor"] == processor]
        seeds, dates = (sorted({run[key] for run in own}) for key in ("seed", "date"))
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines.append(f"{processor}, {when}, seed{'s' if len(seeds) > 1 else ''} {', '.join(str(seed) for seed in seeds)}")
    return lines


def tried(directory: Path) -> str:
    """Return one table of all reports in a folder, with settings and results."""
    head = [
        "suite",
        "label",
        "protocol",
        "changed settings",
        "seeds",
        "frames, M",
        "return at the end, median",
        "levels reached",
        "minutes",
        "kept",
    ]
    lines = ["# What was tried", "", row(head), row(["---"] * len(head))]
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    for report in sorted(reports, key=lambda report: (report["suite"], report["label"])):
        for game, one in report["games"].items():
            reached = ", ".join(f"{level}: {_reached(found, one['seeds'])}" for level, found in one["reached"].items())
            frames = min(run["env_frames"] for run in report["runs"] if run["game"] == game) / 1e6
            name = report["suite"] if game == report["suite"] else f"{report['suite']}, {game}"
            cells = [f"{frames:.1f}", f"{one['median_last_return']:,.1f}", reached or "-", f"{one['median_minutes']:.1f}"]
            lines.append(
                row([name, report["label"], report.get("protocol") or "-", _changes(report), str(one["seeds"]), *cells, report["kept"]])
            )
    return "\n".join(lines) + "\n"


def _reached(found: Sequence[Any], seeds: int) -> str:
    frames, minutes, number = found
    if frames is None or minutes is None:
        return f"{number} of {seeds}"
    return f"{frames / 1e6:.1f} M, {minutes:.1f} min ({number} of {seeds})"


def _command(report: Mapping[str, Any]) -> str:
    """Return one command that trains every run of a report, to which several commands may have added."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for word in ("--seeds", "--first_seed", "--only"):
        parser.add_argument(word, action="append")
    parser.add_argument("--kept", nargs="+")  # older reports have its words without quotes
    parser.add_argument("--resume", action="store_true")
    words = parser.parse_known_args(shlex.split(report["command"]))[1]
    seeds = sorted({run["seed"] for run in report["runs"]})
    words += ["--seeds", str(seeds[-1] - seeds[0] + 1), *(["--first_seed", str(seeds[0])] if seeds[0] > 1 else [])]
    if missing := set(SUITES[report["suite"]].games) - set(report["games"]):
        words += [word for game in report["games"] if game not in missing for word in ("--only", game)]
    return shlex.join(words)


def _changes(report: Mapping[str, Any]) -> str:
    return ", ".join(f"`{each}`" for each in report["overrides"]) or "none"


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
