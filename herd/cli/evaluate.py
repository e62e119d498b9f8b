"""``herd evaluate``: scores of checkpoints over whole games, or of training, as a table, CSV, JSON and a picture."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import POSITIVE_WHOLE, WHOLE, CommandError, OneLineParser, run_source
from herd.cli.preflight import require
from herd.cli.run_paths import check_checkpoint, existing_run, place_for_results, run_with_checkpoint
from herd.config.loading.sources import take_section

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from herd.evaluation.report import EvaluationReport

_LINE_SECONDS = 10.0
"""Seconds between lines of progress without a terminal; the first line is printed at once."""


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd evaluate",
        description="Plays whole games of every task with the checkpoints of runs. Prints the scores and writes them as .json, .csv "
        "and, for several tasks, .png. Several runs make one table: give one run for each task, or several (seeds) for each. The "
        "environments have the settings of training unless options (such as --env.noop_max 30) or a protocol change them.",
    )
    parser.add_argument(
        "run_dirs",
        type=run_source,
        nargs="+",
        metavar="RUN_DIR",
        help="run directory of herd train, or a file of herd pack",
    )
    parser.add_argument(
        "--protocol", metavar="NAME", help="impala-atari, impala-dmlab, laser-atari, machado, saber or dopamine (docs/evaluation.md)"
    )
    parser.add_argument("--episodes", type=POSITIVE_WHOLE, metavar="N", help="number of games per task; default: the protocol's, or 200")
    parser.add_argument(
        "--frames",
        type=POSITIVE_WHOLE,
        metavar="N",
        help="laser-atari and dopamine only: take returns after this many env frames per task; default: at the end of the run",
    )
    parser.add_argument("--seed", type=WHOLE, default=0, metavar="N", help="random seed of games and of the policy's sampling")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="directory of one checkpoint; default: the newest intact one")
    parser.add_argument(
        "--environments", type=POSITIVE_WHOLE, metavar="N", help="number of games played at once; default: chosen automatically"
    )
    parser.add_argument("--greedy", action="store_true", help="take the most probable action instead of sampling")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="STEM",
        help="write STEM.json, STEM.csv and STEM.png; default: RUN_DIR/evaluation-<updates>, or ./evaluation for several runs",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def run(argv: Sequence[str]) -> int:
    """Evaluate; returns the exit code."""
    overrides, words = take_section(argv, "env")
    options = _parser().parse_args(words)
    from rich.console import Console  # noqa: PLC0415  after the command line is understood

    from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError  # noqa: PLC0415
    from herd.components.user_code import prints_to_stderr  # noqa: PLC0415
    from herd.evaluation.protocols import EvaluationError, protocol_named  # noqa: PLC0415
    from herd.evaluation.report import print_report  # noqa: PLC0415
    from herd.view.terminal import table_console  # noqa: PLC0415

    try:
        of_training = options.protocol is not None and protocol_named(options.protocol).training is not None
        _check_options(options, overrides, of_training=of_training)
        find = existing_run if of_training else run_with_checkpoint
        given = options.run_dirs
        options.run_dirs = [find(directory) for directory in options.run_dirs]
        for directory in options.run_dirs:
            check_checkpoint(options.checkpoint, directory)
        require("torch")
        with prints_to_stderr():
            report = _scored(options, overrides, Console(stderr=True), of_training=of_training)
    except (BrokenEnvironmentError, EvaluationError, UnknownTaskError) as error:
        raise CommandError(str(error)) from error
    stem = options.output if options.output is not None else _default_stem(given, options.run_dirs, report)
    written = _write(report, stem)
    if options.json:
        sys.stdout.write(written[0].read_text(encoding="utf-8"))
    else:
        print_report(report, table_console())
        print(*written, sep="\n")
    return 0


def _check_options(options: argparse.Namespace, overrides: Sequence[str], *, of_training: bool) -> None:
    if not of_training and options.frames is not None:
        raise CommandError("--frames needs --protocol laser-atari or dopamine, which score the returns of training")
    if of_training:
        playing = {"--episodes": options.episodes, "--checkpoint": options.checkpoint, "--environments": options.environments}
        given = [name for name, value in playing.items() if value is not None] + ["--greedy"] * options.greedy + list(overrides[:1])
        if given:
            raise CommandError(
                f"{given[0]} cannot be used with {options.protocol}, which scores the returns of training and plays no games"
            )


def _scored(options: argparse.Namespace, overrides: Sequence[str], console: Console, *, of_training: bool) -> EvaluationReport:
    from herd.evaluation.evaluate import evaluate_runs, score_training  # noqa: PLC0415  loads torch

    if of_training:
        return score_training(options.run_dirs, protocol=options.protocol, frames=options.frames)
    playing = f"playing {', '.join(map(str, options.run_dirs))}"
    with console.status(playing) as status:
        lines = Lines(console, playing)
        shown = status.update if console.is_terminal else lines.show
        return evaluate_runs(
            options.run_dirs,
            protocol=options.protocol,
            episodes=options.episodes,
            overrides=overrides,
            checkpoint=options.checkpoint,
            seed=options.seed,
            environments=options.environments,
            greedy=options.greedy,
            on_progress=lambda label, finished, wanted: shown(f"{label}: {finished} of {wanted} games"),
            while_playing=None if console.is_terminal else lines.tick,
        )


class Lines:
    """Progress without a terminal: prints the newest text at once, then every ``_LINE_SECONDS``, even if no game finishes."""

    def __init__(self, console: Console, text: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``text`` is printed at the first tick, so that an early error is the only line."""
        self._console = console
        self._clock = clock
        self._started = self._due = clock()
        self._text = text

    def show(self, text: str) -> None:
        """Print this text when a line is due."""
        self._text = text
        self.tick()

    def tick(self) -> None:
        """Print the newest text if a line is due."""
        now = self._clock()
        if now >= self._due:
            self._due = now + _LINE_SECONDS
            self._console.print(f"{self._text} ({now - self._started:.0f} s)", markup=False, highlight=False, soft_wrap=True)


def _default_stem(given: Sequence[Path | str], run_dirs: Sequence[Path], report: EvaluationReport) -> Path:
    protocol = "" if report.protocol.name is None else f"-{report.protocol.name}"
    if len(run_dirs) > 1:
        return Path(f"evaluation{protocol}")
    return place_for_results(given[0], run_dirs[0], f"evaluation-{report.runs[0].learner_updates}{protocol}")


def _write(report: EvaluationReport, stem: Path) -> list[Path]:
    """Write STEM.json, STEM.csv and, if there is something to compare, STEM.png."""
    from herd.files import FileError  # noqa: PLC0415  not needed for --help
    from herd.view.plots.scores import Bar, draw_scores  # noqa: PLC0415

    paths = [stem.with_name(stem.name + suffix) for suffix in (".json", ".csv")]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        report.write_json(paths[0])
        report.write_csv(paths[1])
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or paths[0]}: {error.strerror or error}") from error
    if report.summary is None:
        return paths
    picture = stem.with_name(stem.name + ".png")
    bars = [Bar(task.task_name, task.human_normalised or 0.0, task.human_normalised_interval_95) for task in report.tasks]
    title = f"{report.runs[0].run if len(report.runs) == 1 else f'{len(report.runs)} runs'}: {len(bars)} tasks" + (
        "" if report.protocol.name is None else f", {report.protocol.name}"
    )
    try:
        require("matplotlib")
        draw_scores(bars, picture, title=title, lines={"median": report.summary["median"].score})
    except (CommandError, FileError) as error:
        print(f"herd: picture not drawn: {error}", file=sys.stderr)
        return paths
    return [*paths, picture]
