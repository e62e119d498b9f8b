"""``herd train`` as a program of its own, for those who start runs: scripts, notebooks, sweeps.

It is started anew and not forked, so it needs nothing of the process that starts it: no guard in a script, no main thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from herd.config.curve_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE
from herd.config.keys import ENVIRONMENT_PREFIX
from herd.config.loading import dump_settings
from herd.supervisor.child import before_exec

if TYPE_CHECKING:
    from herd.config.settings import RunSettings

STOP_SECONDS = 90.0
"""For a run that is told to stop: its checkpoint, its report and its picture, on a machine that is busy."""


def start_training(settings: RunSettings, *, output: int | IO[str] | None, errors: int | IO[str] | None) -> subprocess.Popen[str]:
    """Start ``herd train`` under ``settings``, whose ``run_dir`` says where.

    It ends, with a checkpoint, when the thread that started it does. Signals of the terminal do not reach it. ``output``, ``errors``: as
    ``stdout`` and ``stderr`` of `subprocess.Popen`.

    Raises:
        OSError: no process can be made.

    """
    keys = CURVE_VARIABLES | {RUN_TOKEN_VARIABLE}
    # What is handed over is resolved: a variable of the environment must not change it again.
    environ = {name: value for name, value in os.environ.items() if name in keys or not name.startswith(ENVIRONMENT_PREFIX)}
    process = subprocess.Popen(
        [sys.executable, "-m", "herd.cli.main", "train", "/dev/stdin", *(["--resume"] if settings.resume else [])],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        text=True,
        env=environ | {"PYTHONUNBUFFERED": "1"},
        process_group=0,
        preexec_fn=before_exec(os.getpid(), number=signal.SIGTERM),  # noqa: PLW1509  system calls only, which take no lock
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as settings_file:  # one that ended at once says why by itself
        settings_file.write(dump_settings(settings))
    return process


def stop_training(process: subprocess.Popen[str]) -> None:
    """Take a run down in order, and at last by force; nothing to do where it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
