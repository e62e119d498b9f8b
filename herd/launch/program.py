"""Starts ``herd train`` as a separate program from scripts, notebooks and sweeps.

The caller is not forked, so a script needs no ``__main__`` guard, and the call may come from any thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from herd.config.curve_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE
from herd.config.loading import dump_settings
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.launch.child import before_exec

if TYPE_CHECKING:
    from herd.config.run import RunSettings

STOP_SECONDS = 90.0
"""Longest wait for a run that was told to stop: it writes checkpoint, report and picture, possibly on a busy machine."""


def start_training(settings: RunSettings, *, output: int | IO[str] | None, errors: int | IO[str] | None) -> subprocess.Popen[str]:
    """Start ``herd train`` with ``settings``, which include ``run_dir``.

    It stops with a checkpoint when the thread that started it ends. Signals of the terminal do not reach it. ``output`` and ``errors`` are
    ``stdout`` and ``stderr`` of `subprocess.Popen`.

    Raises:
        OSError: the process cannot be created.

    """
    keys = CURVE_VARIABLES | {RUN_TOKEN_VARIABLE}
    # The settings are resolved, so the environment must not change them again.
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
    with suppress(BrokenPipeError), process.stdin as settings_file:  # a process that ended at once reports the reason itself
        settings_file.write(dump_settings(settings))
    return process


def stop_training(process: subprocess.Popen[str]) -> None:
    """Stop a run cleanly, and kill it if necessary. Does nothing if it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
