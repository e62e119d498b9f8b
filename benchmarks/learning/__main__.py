"""How fast a recipe learns: ``python -m benchmarks.learning --suite pong --seeds 3``.

Trains the suite's experiment by ``herd train``, one run after the other, into ``RUNS/<suite>/<label>``, and plays each last checkpoint.
After each run it writes ``<suite>-<label>.json``, ``.png`` and ``.md`` and the table of everything tried, ``README.md``, into
``benchmarks/results/learning``. A run whose folder or result is there is not trained again, so the command continues where it was
interrupted, also on another machine.

To search: ``--label wide --set network.width_multiplier=2 --set optimizer.learning_rate=1e-3 --frames 2e6``, or ``--seconds 120`` to bound
each run by the clock. Nothing else may run beside runs whose minutes are reported.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.learning.picture import draw
from benchmarks.learning.results import RunResult, as_json, markdown, run_result, run_result_from_json, tried
from benchmarks.learning.suites import SUITES, Suite
from benchmarks.whole_runs import train_whole
from herd.config.experiments import suite_presets
from herd.config.loading import load_settings
from herd.evaluation.protocols import EvaluationError, TrainingScore, protocol_named, training_scores
from herd.service.host import describe_hardware
from herd.view.plots.history import read_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/learning"
SLOWEST_FRAMES_PER_SECOND = 500.0
"""A slower run hangs and is ended."""
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def main() -> None:
    """Train missing runs, then write the results of all."""
    parser = _parser()
    options = parser.parse_args()
    suite = SUITES[options.suite]
    if not _LABEL.fullmatch(options.label):
        parser.error("--label: small letters, digits and dashes")
    games = options.only or suite.games
    if not set(games) <= set(suite.games):
        parser.error(f"--only: {options.suite} has {', '.join(suite.games)}")
    # So that SIGTERM also ends the current run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    frames = int(options.frames) if options.frames else suite.frames
    overrides = [word for each in options.set for word in _override(each, parser)]
    stop = ["--stop.env_frames", str(frames), *(["--stop.wall_seconds", str(options.seconds)] if options.seconds else [])]
    protocol = [] if options.protocol is None else ["--evaluation.protocol", options.protocol]
    words = [*protocol, *suite.words, *overrides, *stop]
    experiment, *presets = run_files(suite, options.protocol)
    load_settings([experiment, *presets], words, {})  # invalid settings are refused before anything runs
    made_of = {"experiment": yaml.safe_load(experiment.read_text(encoding="utf-8")), "words": words}
    runs = options.runs / options.suite / options.label
    stem = options.output / f"{options.suite}-{options.label}"
    _check_label(runs, made_of)
    results = _earlier(stem.with_suffix(".json"), made_of)
    # All games of a seed come before the next seed, so that existing runs can always be compared.
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    wanted = [(game, seed) for seed in seeds for game in suite.games if game in games]
    for number, (game, seed) in enumerate(wanted, start=1):
        directory = runs / f"{game}-seed{seed}"
        place = f"{number} of {len(wanted)}: {directory.name}"
        if (game, seed) in results and not directory.is_dir():
            print(f"{place} is in the results", flush=True)
            continue
        if directory.is_dir():
            print(f"{place} is there", flush=True)
        else:
            started = time.monotonic()
            own = ["--env.tasks", game, "--name", directory.name, "--seed", str(seed)]
            train_whole(
                directory,
                experiment,
                [*map(str, presets), *own, *words],
                limit_seconds=600.0 + frames / SLOWEST_FRAMES_PER_SECOND,
                resume=options.resume,
            )
            print(f"{place} took {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
        results[game, seed] = _result(directory, game, seed, suite, options)
        _write(_ordered(results, suite), stem, made_of, options, overrides)
    print(stem.with_suffix(".md").read_text(encoding="utf-8"))
    print(f"results: {stem}.json, .png and .md, and {options.output / 'README.md'}")


def run_files(suite: Suite, protocol: str | None) -> list[Path]:
    """Return the experiment, and after it the preset of the protocol, which also sets what a paper's experiment sets otherwise."""
    return [ROOT / f"experiments/{suite.experiment}.yaml", *([] if protocol is None else [suite_presets()[f"atari-{protocol}"]])]


def _check_label(runs: Path, made_of: Mapping[str, Any]) -> None:
    """Check that a label has one meaning: its runs must not be mixed with runs of other settings."""
    kept = runs / "made-of.json"
    if kept.is_file():
        _check_equal(json.loads(kept.read_text(encoding="utf-8")), made_of, f"{runs} holds runs")
        return
    runs.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(made_of, indent=1) + "\n")


def _earlier(report: Path, made_of: Mapping[str, Any]) -> dict[tuple[str, int], RunResult]:
    """Return the results that a report holds, by game and seed."""
    if not report.is_file():
        return {}
    found = json.loads(report.read_text(encoding="utf-8"))
    _check_equal(found["made_of"], made_of, f"{report} holds results")
    return {(run["game"], run["seed"]): run_result_from_json(run) for run in found["runs"]}


def _check_equal(found: Mapping[str, Any], made_of: Mapping[str, Any], holds: str) -> None:
    if found != made_of:
        raise SystemExit(f"{holds} of other settings: choose another --label, or remove it")


def _ordered(results: Mapping[tuple[str, int], RunResult], suite: Suite) -> list[RunResult]:
    return sorted(results.values(), key=lambda result: (result.seed, suite.games.index(result.game)))


def _result(directory: Path, game: str, seed: int, suite: Suite, options: argparse.Namespace) -> RunResult:
    history = read_run(directory)
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    first, *_ = (directory / "starts.jsonl").read_text(encoding="utf-8").splitlines()
    return run_result(
        game,
        seed,
        env_frames=history.env_frames,
        wall_seconds=history.wall_seconds,
        returns=history.episode_returns[game],
        levels=suite.levels,
        evaluation=_evaluated(directory, options.games, seed) if options.games else None,
        processor=report["machine"]["processor"],
        date=json.loads(first)["started"][:10],
        counted=_counted(directory, game, options.protocol),
    )


def _counted(directory: Path, game: str, protocol: str | None) -> TrainingScore | None:
    """Return the mean of the games of training that the protocol counts; None if it counts none, or the run has none."""
    window = None if protocol is None else protocol_named(protocol).training
    if window is None:
        return None
    try:
        return training_scores(directory, [game], window, None)[game]
    except EvaluationError as error:
        print(f"{error}; its return at the end is the curve's", flush=True)
        return None


def _evaluated(directory: Path, games: int, seed: int) -> float:
    """Return the mean return of whole games of the last checkpoint, played once as by ``herd evaluate``."""
    kept = directory / f"benchmark-evaluation-{games}.json"
    if not kept.is_file():
        from herd.evaluation.evaluate import evaluate_runs  # noqa: PLC0415  torch loads

        mean = evaluate_runs([directory], episodes=games, seed=seed).tasks[0].mean
        kept.write_text(json.dumps(mean) + "\n")
        print(f"{directory.name}: {mean:,.1f} over {games} games", flush=True)
    return float(json.loads(kept.read_text()))


def _write(
    results: Sequence[RunResult], stem: Path, made_of: Mapping[str, Any], options: argparse.Namespace, overrides: Sequence[str]
) -> None:
    report = as_json(
        results,
        suite=options.suite,
        label=options.label,
        experiment=SUITES[options.suite].experiment,
        made_of=made_of,
        protocol=options.protocol,
        overrides=[f"{key.removeprefix('--')}={value}" for key, value in zip(overrides[::2], overrides[1::2], strict=True)],
        games_per_evaluation=options.games,
        kept=options.kept,
        command=_command(sys.argv[1:]),
        hardware_of_the_last_run=describe_hardware(),
    )
    options.output.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    show(report, options.output)
    (options.output / "README.md").write_text(tried(options.output))


def show(report: Mapping[str, Any], folder: Path) -> None:
    """Write the tables and the picture of a report beside its data."""
    stem = folder / f"{report['suite']}-{report['label']}"
    stem.with_suffix(".md").write_text(markdown(report))
    runs = [run_result_from_json(run) for run in report["runs"]]
    draw(runs, stem.with_suffix(".png"), title=f"{report['suite']}: {report['label']}")


def _command(words: Sequence[str]) -> str:
    """Return the command for a shell, without the folders of one machine, which say nothing about the results."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--runs")
    parser.add_argument("--output")
    return shlex.join(["python", "-m", "benchmarks.learning", *parser.parse_known_args(words)[1]])


def _override(text: str, parser: argparse.ArgumentParser) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        parser.error(f"--set {text}: give key=value, such as optimizer.learning_rate=1e-3")
    return f"--{key}", value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--suite", choices=list(SUITES), required=True)
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many (3)")
    parser.add_argument("--first_seed", type=int, default=1, metavar="N", help="the first of them (1)")
    parser.add_argument("--only", action="append", metavar="GAME", help="train this game of the suite; may be repeated (all)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting that differs from the experiment's")
    parser.add_argument(
        "--protocol", choices=["dopamine", "machado", "saber"], help="that sets how games are played (the recipe's settings)"
    )
    parser.add_argument("--label", default="recipe", help="names what is tried (recipe: the experiment as it is)")
    parser.add_argument("--frames", type=float, metavar="F", help="env frames of each run; the learning rate's schedule stays")
    parser.add_argument("--seconds", type=float, metavar="S", help="end each run after so many seconds")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run from its newest checkpoint, not from its start")
    parser.add_argument("--games", type=int, default=30, metavar="N", help="that each last checkpoint plays (30; 0 for none)")
    parser.add_argument("--kept", default="-", help="for the table of what was tried: yes, no, or why")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"), metavar="DIR", help="where runs are (runs/learning)")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR", help="where results go")
    return parser


if __name__ == "__main__":
    main()
