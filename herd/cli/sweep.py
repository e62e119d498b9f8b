"""``herd sweep``: trains an experiment over seeds and a grid of settings, or searches the best ones; the results are a table and files."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.cli.options import POSITIVE_WHOLE, CommandError, OneLineParser
from herd.cli.preflight import check_before_start, require
from herd.cli.train import is_run, read_settings
from herd.config.errors import SettingsError, printable
from herd.config.loading import load_settings
from herd.config.loading.sources import split_arguments
from herd.run.journals import METRICS
from herd.run.paths import AGENTS, CONFIG, RUNS
from herd.run.settings import flat_values
from herd.sweeps.grid import Combination, Range, combinations, directory_name, label, parse_range, parse_values
from herd.sweeps.whole_runs import ClaimedError, Trial, check_unclaimed, train_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from herd.config.run import RunSettings
    from herd.sweeps.search import Result
    from herd.sweeps.summary import Estimate, RunScore
    from herd.sweeps.whole_runs import WholeRun
    from herd.view.plots.history import RunHistory

_SEEDS = 3
_OWN = frozenset({"run_dir", "resume", "placement"})
"""Settings and sections that are not compared with those of an existing run, because they change nothing about what it learns."""
_LARGE = 1000.0
"""Results of this size are printed without decimals."""


class _Cell(NamedTuple):
    """One combination with one seed."""

    combination: int
    seed: int
    directory: Path
    """Directory of its curve and report: that of an agent if the combinations of a seed are agents of one run."""


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd sweep",
        usage="herd sweep FILE [FILE ...] [--seeds N | --trials N] [--set KEY=VALUE,VALUE ...] [--section.key value ...]",
        description="Trains an experiment under every combination of the values given with --set, once for each seed, and compares the "
        "returns at the end of training: interquartile means over seeds with 95% bootstrap intervals. Finished runs are not trained "
        "again, so the same command continues after an interruption, and more seeds or values add runs. Other settings are given as for "
        "herd train and apply to all runs. With --trials, Optuna chooses the values instead, and stops runs that fall behind. "
        "Writes sweep.json, sweep.csv and sweep.png next to the runs.",
    )
    parser.add_argument("--seeds", type=POSITIVE_WHOLE, metavar="N", help=f"number of runs of each combination; default: {_SEEDS}")
    parser.add_argument("--first_seed", type=int, default=1, metavar="N", help="first seed; the others are the following numbers")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=A,B",
        help="a setting and its values; repeat it for a grid. With --trials also a range, such as optimizer.learning_rate=1e-4..1e-2",
    )
    parser.add_argument(
        "--trials", type=POSITIVE_WHOLE, metavar="N", help="search: number of runs, over all machines that share the output folder"
    )
    parser.add_argument(
        "--parallel", type=POSITIVE_WHOLE, default=1, metavar="N", help="number of runs at the same time, which share this machine"
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="train the combinations of a seed as the agents of one run (settings of loss and optimizer only)",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of runs and results; default: runs/NAME-sweep")
    return parser


def run(argv: Sequence[str]) -> int:
    """Sweep; returns the exit code: 1 if a run failed."""
    options, words = _parser().parse_known_args(argv)
    files, overrides = split_arguments(words)
    files = [file / CONFIG if is_run(file) else file for file in files]  # new runs with the settings of a run
    if not files:
        raise CommandError("sweep needs a run file or the name of an experiment, such as catch (see herd sweep --help)")
    if options.first_seed < 0:
        raise CommandError(f"--first_seed must be at least 0, not {options.first_seed}")
    values = _values(options.set)
    common = [*map(str, files), *overrides]
    settings = read_settings(common, os.environ)
    if settings.stop.env_frames is None and settings.stop.wall_seconds is None:
        raise CommandError("stop.env_frames: the runs of a sweep must end; set this or stop.wall_seconds")
    output = options.output or RUNS / f"{settings.name}-sweep"
    about = {"files": [str(file) for file in files], "overrides": overrides, "together": options.together}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM also ends the runs in flight
    if options.trials is not None:
        return _search(options, output, common, settings, values=values, about=about)
    if ranges := [f"{key}={text}" for key, texts in values.items() for text in texts if parse_range(key, text)]:
        raise CommandError(f"--set {ranges[0]}: a range needs --trials; a grid has single values")
    grid = combinations(values)
    if options.together and not values:
        raise CommandError("--together needs combinations to train as agents: add --set")
    seeds = range(options.first_seed, options.first_seed + (options.seeds or _SEEDS))
    trials, cells = _plan(output, common, grid, seeds, together=options.together)
    try:
        failed = _train(_checked(trials), len(trials), options.parallel)
    except ClaimedError as error:
        raise CommandError(str(error)) from error
    present = [cell for cell in cells if (cell.directory / METRICS).is_file()]
    if present:
        _tell(output, grid, present, about)
    for each in failed:
        print(f"herd: {each.trial.directory} failed: see {each.trial.output}", file=sys.stderr)
    return 1 if failed else 0


def _values(words: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for word in words:
        key, texts = parse_values(word)
        if key in values:
            raise CommandError(f"--set {key}: given twice; separate its values with commas")
        values[key] = texts
    return values


def _search(
    options: argparse.Namespace,
    output: Path,
    common: Sequence[str],
    settings: RunSettings,
    *,
    values: Mapping[str, Sequence[str]],
    about: Mapping[str, object],
) -> int:
    """Search the best settings; returns the exit code: 1 if no run is complete."""
    if options.seeds is not None or options.together:
        raise CommandError("--trials cannot be combined with --seeds or --together: sweep the settings that it finds over seeds")
    if not values:
        raise CommandError("--trials needs settings to search: add --set, such as --set optimizer.learning_rate=1e-4..1e-2")
    require("optuna")
    space = {key: _choices(key, texts) for key, texts in values.items()}
    for number in range(max(map(len, space.values()))):  # each value once
        tried = read_settings([*common, *_words({key: _end(choices, number) for key, choices in space.items()})], os.environ)
        notes = check_before_start(tried) if number == 0 else []
    from herd.sweeps.search import JOURNAL, Study  # noqa: PLC0415  loads optuna

    plan = {"settings": settings.model_dump(mode="json"), "set": dict(values), "first_seed": options.first_seed}
    if not (output / JOURNAL).exists() and next(output.glob("trial-*"), None) is not None:
        raise CommandError(f"{output}: has runs of a study without its {JOURNAL}: choose another --output, or remove them")
    study = Study(output, space, plan)
    if (key := _first_difference(study.plan, json.loads(json.dumps(plan)))) is not None:
        raise CommandError(f"{output}: this study was begun with another {key.removeprefix('settings.')}: choose another --output")
    for note in notes:
        print(f"herd: {note}", file=sys.stderr)
    study.begin_with({key: _default(settings, key) for key in space})
    stop = settings.stop

    def progress(history: RunHistory) -> float:
        ends = ((history.env_frames, stop.env_frames), (history.wall_seconds, stop.wall_seconds))
        return max(float(reached[-1]) / end for reached, end in ends if end is not None)

    def on_end(directory: Path, result: Result) -> None:
        value = "" if result.value is None else f", return {result.value:,.2f}"
        print(printable(f"{directory.name}: {result.state}{value}"), flush=True)

    study.search(
        lambda number, chosen: [*common, *_words(chosen), "--seed", str(options.first_seed + number)],
        progress,
        trials=options.trials,
        parallel=options.parallel,
        on_start=lambda directory, chosen: print(printable(f"{directory.name}: training with {label(chosen)}"), flush=True),
        on_end=on_end,
    )
    results = study.results()
    importance = study.importance()
    found = {"study": [result._asdict() for result in results], "importance": importance}
    cells = [_Cell(place, options.first_seed + each.number, study.directory(each.number)) for place, each in enumerate(results)]
    present = [cell for cell in cells if (cell.directory / METRICS).is_file()]
    if present:
        _tell(output, [each.values for each in results], present, {**about, **found}, results)
    for key, share in importance.items():
        print(f"importance of {key}: {share:.0%}")
    return 0 if results and results[0].state == "complete" else 1


def _choices(key: str, texts: Sequence[str]) -> Range | list[str]:
    found = parse_range(key, texts[0]) if len(texts) == 1 else None
    return found or list(texts)


def _end(choices: Range | Sequence[str], number: int) -> str:
    """Return a value to check: one end of a range or the other, or one of the values."""
    if isinstance(choices, Range):
        end = choices[number % 2]
        return str(int(end) if choices.is_whole else end)
    return choices[number % len(choices)]


def _default(settings: RunSettings, key: str) -> object:
    value: Any = settings.model_dump(mode="json")
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _words(values: Mapping[str, str]) -> list[str]:
    return [word for key, text in values.items() for word in (f"--{key}", text)]


def _plan(
    output: Path, common: Sequence[str], grid: Sequence[Combination], seeds: Sequence[int], *, together: bool
) -> tuple[list[Trial], list[_Cell]]:
    """Plan the runs. All combinations of a seed come before the next seed, so that finished runs can be compared at any time."""
    trials, cells = [], []
    for seed in seeds:
        if together:
            directory = output / f"together-seed{seed}"
            swept = {key: [_value(text) for text in dict.fromkeys(each[key] for each in grid)] for key in grid[0]}
            own = ["--seed", str(seed), "--agents", str(len(grid)), "--sweep", json.dumps(swept)]
            trials.append(Trial(directory, (*common, *own)))
            cells += [_Cell(number, seed, directory / AGENTS / str(number) if len(grid) > 1 else directory) for number in range(len(grid))]
            continue
        for number, combination in enumerate(grid):
            directory = output / directory_name(combination) / f"seed{seed}"
            trials.append(Trial(directory, (*common, *_words(combination), "--seed", str(seed))))
            cells.append(_Cell(number, seed, directory))
    return trials, cells


def _value(text: str) -> Any:
    """Parse a value as in the section ``sweep``."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checked(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that are not finished. Check that they can be trained, and that finished ones have the same settings.

    Raises:
        ClaimedError: another sweep trains one of them.
        CommandError: a trial cannot be trained, or a finished one has other settings.
        SettingsError: see ``read_settings``.

    """
    missing = []
    notes: dict[str, None] = {}
    for trial in trials:
        settings = read_settings(trial.words, os.environ)
        if not trial.directory.is_dir():
            check_unclaimed(trial)
            notes.update(dict.fromkeys(check_before_start(settings)))
            missing.append(trial)
        elif (key := _difference(settings, trial.directory)) is not None:
            raise CommandError(
                f"{trial.directory}: was trained with another {key}: choose another --output, or remove it to train it again"
            )
    for note in notes:
        print(f"herd: {note}", file=sys.stderr)
    return missing


def _difference(settings: RunSettings, directory: Path) -> str | None:
    """Return the first setting in which a finished run differs from ``settings``; None if there is none."""
    try:
        trained = load_settings([directory / CONFIG], [], {})
    except SettingsError as error:
        raise CommandError(f"{directory}: cannot be compared: {error}") from error
    return _first_difference(trained.model_dump(mode="json"), settings.model_dump(mode="json"))


def _first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return the first setting in which two runs or studies differ, other than in `_OWN`; None if there is none."""
    left, right = flat_values(one), flat_values(other)
    differing = (key for key in dict.fromkeys([*left, *right]) if left.get(key) != right.get(key))
    return next((key for key in differing if key.partition(".")[0] not in _OWN), None)


def _train(missing: Sequence[Trial], total: int, parallel: int) -> list[WholeRun]:
    there = total - len(missing)
    if there:
        print(f"{there} of {total} runs are finished", flush=True)
    numbers = {trial.directory: number for number, trial in enumerate(missing, start=there + 1)}

    def on_start(trial: Trial) -> None:
        print(printable(f"{numbers[trial.directory]} of {total}: training {trial.directory}"), flush=True)

    def on_end(run: WholeRun, code: int) -> None:
        ended = "finished" if code == 0 else f"failed (exit code {code})"
        minutes = (time.monotonic() - run.started) / 60
        line = f"{numbers[run.trial.directory]} of {total}: {run.trial.directory} {ended} after {minutes:.1f} minutes"
        print(printable(line), flush=True)

    return train_all(missing, parallel=parallel, on_start=on_start, on_end=on_end)


def _tell(
    output: Path, grid: Sequence[Combination], cells: Sequence[_Cell], about: Mapping[str, object], results: Sequence[Result] = ()
) -> None:
    """Write and print the results; ``results``: of a search, one for each combination."""
    from herd.components.suites import SUITES, suite_named  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.sweeps.summary import RunScore, estimates, final_return, write_csv, write_json  # noqa: PLC0415
    from herd.view.plots.history import read_run  # noqa: PLC0415

    def score(cell: _Cell, history: RunHistory) -> RunScore:
        reached = {task: final_return(history.env_frames, returns) for task, returns in history.episode_returns.items()}
        known = {task: value if value == value else None for task, value in reached.items()}  # noqa: PLR0124  NaN: no game ended
        frames, seconds = float(history.env_frames[-1]), float(history.wall_seconds[-1])
        return RunScore(cell.combination, cell.seed, str(cell.directory), frames, seconds, known)

    try:
        histories = [read_run(cell.directory) for cell in cells]
        scores = [score(cell, history) for cell, history in zip(cells, histories, strict=True)]
        suite = histories[0].suite
        found = estimates(scores, suite_named(suite).reference_scores() if suite in SUITES.parts else {})
        files = [output / "sweep.json", output / "sweep.csv"]
        write_json(files[0], grid, scores, found, **about)
        write_csv(files[1], grid, scores)
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or output}: {error.strerror or error}") from error
    if results:
        _print_results(results)
        found = [each for each in found if results[each.combination].state == "complete"]
    else:
        _print_table(grid, found)
    if found and (picture := _draw(output / "sweep.png", grid, found)) is not None:
        files.append(picture)
    print(*files, sep="\n")


def _print_table(grid: Sequence[Combination], found: Sequence[Estimate]) -> None:
    from rich.table import Table  # noqa: PLC0415  not needed for --help

    from herd.view.terminal import table_console  # noqa: PLC0415

    several = len({each.what for each in found}) > 1
    table = Table(box=None, pad_edge=False, title="return at the end of training", title_justify="left")
    for heading in ("settings", *(("task",) if several else ())):
        table.add_column(heading, overflow="fold")
    for heading in ("runs", "IQM", "95 % interval", "mean", "lowest", "highest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        cells = [label(grid[each.combination]), *([each.what] if several else []), str(each.runs)]
        table.add_row(*cells, *_numbers(each))
    table_console().print(table)


def _print_results(results: Sequence[Result]) -> None:
    from rich.table import Table  # noqa: PLC0415  as above

    from herd.view.terminal import table_console  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, title="return at the end of training, the best first", title_justify="left")
    for heading, side in (("trial", "right"), ("return", "right"), ("state", "left"), ("settings", "left")):
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for each in results:
        table.add_row(str(each.number), "-" if each.value is None else f"{each.value:,.2f}", each.state, label(each.values))
    table_console().print(table)


def _numbers(found: Estimate) -> list[str]:
    """Return the interquartile mean, its interval, the mean, the lowest and the highest result; a dash for what is not known."""
    extremes = (min(found.scores), max(found.scores)) if found.scores else None
    values = [found.interquartile_mean, found.mean, *(found.interval_95 or ()), *(extremes or ())]
    decimals = 0 if max(map(abs, values)) >= _LARGE else 2

    def texts(numbers: tuple[float, ...] | None) -> list[str]:
        return ["-", "-"] if numbers is None else [f"{number:,.{decimals}f}" for number in numbers]

    interval = "-" if found.interval_95 is None else " to ".join(texts(found.interval_95))
    centre, mean = texts((found.interquartile_mean, found.mean))
    return [centre, interval, mean, *texts(extremes)]


def _draw(path: Path, grid: Sequence[Combination], found: Sequence[Estimate]) -> Path | None:
    from herd.files import FileError  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.view.plots.scores import Row, draw_sweep  # noqa: PLC0415

    panels: dict[str, list[Row]] = {}
    for each in found:
        row = Row(label(grid[each.combination]), each.interquartile_mean, each.interval_95, each.scores)
        panels.setdefault(each.what, []).append(row)
    try:
        require("matplotlib")
        draw_sweep(panels, path, title=f"{path.parent.name}: return at the end of training")
    except (CommandError, FileError) as error:
        print(f"herd: picture not drawn: {error}", file=sys.stderr)
        return None
    return path
