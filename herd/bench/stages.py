"""Runs one stage in its own process, started as in production, and reads its measurement.

A stage process prints one JSON line (`Measurement`). ``environment``, ``inference`` and ``learner`` run the code of the services, which
this package must not import.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from herd.bench.measurement import Measurement
from herd.config.curve_keys import CURVE_VARIABLES, EVERY_ROLE, check_curve_keys
from herd.config.errors import SettingsError
from herd.config.loading import load_settings
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.config.loading.sources import split_arguments
from herd.envs.make import environment_spec, what_is_missing
from herd.service.allocator import ALLOCATOR_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings

# One thread each, so that the result is a cost per core; the ceiling assumes that it applies to every core.
STAGES: dict[str, tuple[str, ...]] = {
    "environment": ("herd_actor.bench", "--stage", "environment", "--actor.environment_threads", "1"),
    "inference": ("herd_actor.bench", "--stage", "inference", "--actor.inference_threads", "1"),
    "learner": ("herd_learner.bench", "--learner.threads", "1"),
    "transport": ("herd.bench.transport",),
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


def stage_environment() -> dict[str, str]:
    """Return the environment variables of a service: this process's, with a tuned allocator, and without settings except keys."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX) or name in CURVE_VARIABLES}
    return {**ALLOCATOR_ENVIRONMENT, **kept}


def run_stage(stage: str, config: Path, *, seconds: float) -> Measurement:
    """Measure one stage once, in a new process.

    Raises:
        StageError: the stage failed, hung, or printed no measurement.

    """
    command = [sys.executable, "-m", *STAGES[stage], "--config", str(config), "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command, env=stage_environment(), capture_output=True, text=True, timeout=seconds + GRACE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise StageError(f"{stage}: no result after {seconds + GRACE_SECONDS:g} s") from None
    if done.returncode != 0:
        raise StageError(f"{stage}: exit code {done.returncode}: {_last_line(done.stderr)}")
    try:
        return Measurement.from_json(_last_line(done.stdout))
    except ValueError as error:
        raise StageError(f"{stage}: {error}") from error


def stage_settings(words: Sequence[str]) -> RunSettings:
    """Return the settings of a stage process."""
    files, overrides = split_arguments(words, file_option="--config")
    return load_settings(files, overrides, os.environ)


def split_stage_arguments(argv: Sequence[str], *, stages: Sequence[str] = ()) -> tuple[str, float, list[str]]:
    """Return (stage, seconds, the remaining words for the settings), for stage processes."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--stage", choices=stages, required=bool(stages), default="")
    known, rest = parser.parse_known_args(argv)
    return known.stage, known.seconds, rest


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "(no output)"
