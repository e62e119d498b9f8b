"""Runs one stage in a process of its own, started as in production, and reads what it measured.

A stage process prints one JSON line (`Measurement`). ``environment``, ``inference`` and ``learner`` run the services' own code,
which this package may not import.
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
from herd.config.keys import ENVIRONMENT_PREFIX
from herd.config.layers import SettingsError
from herd.envs.make import environment_spec, what_is_missing
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.topology import SERVERS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings

# One thread each: a cost per core, which the ceiling then spends on every core.
STAGES: dict[str, tuple[str, ...]] = {
    "environment": ("herd_actor.bench", "--stage", "environment", "--actor.environment_threads", "1"),
    "inference": ("herd_actor.bench", "--stage", "inference", "--actor.inference_threads", "1"),
    "learner": ("herd_learner.bench", "--learner.threads", "1"),
    "transport": ("herd.bench.transport",),
}
FREE_PORTS = tuple(
    word
    for key in (*(f"{server.section}.port" for server in SERVERS), *(f"{service.section}.metrics_port" for service in SERVICES))
    for word in (f"--{key}", "0")
)
"""For a run of a benchmark's own: ports that a settings file fixes may be those of a run that is going on."""
# Imports, compilation, one warm-up second and a slow last step; a stage that takes longer hangs.
GRACE_SECONDS = 120.0


DEFAULT_EXPERIMENT = Path("breakout")
"""Measured where no file is named."""


class StageError(RuntimeError):
    """A stage could not be measured; one line."""


def check_measurable(settings: RunSettings) -> None:
    """Check what every stage needs, before any is started.

    Raises:
        SettingsError: keys are missing, or the environments cannot be made.
    """
    check_curve_keys(settings.security, os.environ, EVERY_ROLE)
    try:
        environment_spec(settings.env)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if (missing := what_is_missing(settings.env)) is not None:
        raise SettingsError(missing)


def stage_environment() -> dict[str, str]:
    """This process's environment as a service would have it: allocator tuned, settings only from the given file, keys as they are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX) or name in CURVE_VARIABLES}
    return {**ALLOCATOR_ENVIRONMENT, **kept}


def run_stage(stage: str, config: Path, *, seconds: float) -> Measurement:
    """Measure one stage once, in a fresh process.

    Raises:
        StageError: it failed, hung, or printed no measurement.

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


def split_stage_arguments(argv: Sequence[str], *, stages: Sequence[str] = ()) -> tuple[str, float, list[str]]:
    """For stage processes: (stage, seconds, what is left for the settings)."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--stage", choices=stages, required=bool(stages), default="")
    known, rest = parser.parse_known_args(argv)
    return known.stage, known.seconds, rest


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "(no output)"
