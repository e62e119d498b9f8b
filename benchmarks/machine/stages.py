"""The stages of a run, each measured in a process of its own that is started as in production.

``python -m benchmarks.machine.stages STAGE --config FILE [--seconds N] [--section.key value]`` prints one line of JSON (`Measurement`).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from benchmarks.machine.measurement import Measurement
from herd.components.suites import environment_spec, what_is_missing
from herd.config.encryption_keys import CURVE_VARIABLES, EVERY_ROLE, check_curve_keys
from herd.config.errors import SettingsError
from herd.config.loading import load_settings
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.config.loading.sources import split_arguments
from herd.service.allocator import ALLOCATOR_ENVIRONMENT, ensure_tuned_allocator
from herd.service.signals import STOPPING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.config.run import RunSettings

# Stage -> its function and options. One thread each, so that the result is a cost per core.
STAGES = {
    "environment": ("benchmarks.machine.acting:measure_environment", ("--actor.environment_threads", "1")),
    "inference": ("benchmarks.machine.acting:measure_inference", ("--actor.inference_threads", "1")),
    "learner": ("benchmarks.machine.training:measure_learner", ("--learner.threads", "1")),
    "transport": ("benchmarks.machine.transport:measure_transport", ()),
}
# Time for imports, compilation, the warm-up and a slow last step. A stage that takes longer hangs.
GRACE_SECONDS = 120.0
DEFAULT_EXPERIMENT = Path("breakout")
"""The experiment that is measured if no file is given."""


class StageError(RuntimeError):
    """A stage could not be measured; the text is one line."""


def check_measurable(settings: RunSettings) -> None:
    """Check the requirements of every stage before the first one starts.

    Raises:
        SettingsError: keys are missing, or the environments cannot be created.
    """
    check_curve_keys(settings.security, os.environ, EVERY_ROLE)
    try:
        environment_spec(settings.env)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if (missing := what_is_missing(settings.env)) is not None:
        raise SettingsError(missing)


def leave_on_signals() -> None:
    """Raise SystemExit at the first SIGTERM, SIGINT or SIGHUP, so that the processes of a measurement are ended; ignore later signals.

    By default SIGTERM and SIGHUP would end only this process. The measured run has a session of its own, so it would train forever.
    """

    def leave(number: int, _frame: object) -> NoReturn:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, leave)


def finish(main: Callable[[Sequence[str]], None]) -> NoReturn:
    """Run the command ``main`` and exit: with 0, with 2 for bad input and 1 for a failed stage, each explained in one line."""
    leave_on_signals()
    try:
        main(sys.argv[1:])
    except (SettingsError, StageError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2 if isinstance(error, SettingsError) else 1) from None
    raise SystemExit(0)


def stage_environment() -> dict[str, str]:
    """Return the environment variables of a service: this process's, with a tuned allocator, and without settings except keys."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX) or name in CURVE_VARIABLES}
    return {**ALLOCATOR_ENVIRONMENT, **kept}


def run_stage(stage: str, config: Path, *, seconds: float) -> Measurement:
    """Measure one stage once, in a new process.

    Raises:
        StageError: the stage failed, hung, or printed no measurement.

    """
    command = [sys.executable, "-m", "benchmarks.machine.stages", stage, "--seconds", str(seconds), "--config", str(config)]
    try:
        done = subprocess.run(
            [*command, *STAGES[stage][1]],
            env=stage_environment(),
            capture_output=True,
            text=True,
            timeout=seconds + GRACE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StageError(f"{stage}: no result after {seconds + GRACE_SECONDS:g} s") from None
    if done.returncode != 0:
        raise StageError(f"{stage}: exit code {done.returncode}: {_last_line(done.stderr)}")
    try:
        return Measurement.from_json(_last_line(done.stdout))
    except ValueError as error:
        raise StageError(f"{stage}: {error}") from error


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "(no output)"


def main(argv: Sequence[str]) -> None:
    """Measure one stage in this process."""
    parser = argparse.ArgumentParser(prog="benchmarks.machine.stages", description=__doc__, allow_abbrev=False)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--seconds", type=float, default=5.0)
    options, words = parser.parse_known_args(argv)
    function, _ = STAGES[options.stage]
    files, overrides = split_arguments(words, file_option="--config")
    settings = load_settings(files, overrides, os.environ)
    ensure_tuned_allocator("benchmarks.machine.stages")
    module, name = function.split(":")
    measured: Measurement = getattr(import_module(module), name)(settings, seconds=options.seconds)
    print(measured.to_json())


if __name__ == "__main__":
    finish(main)
