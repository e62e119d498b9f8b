"""Programs that are started apart from a run's children: ``herd train`` itself, and the evaluation of its last checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from herd.components.user_code import PYTHON
from herd.config.encryption_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE
from herd.config.loading import dump_settings
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.launch.child import Child, before_exec, describe_exit, last_lines
from herd.run.paths import CONFIG, LOGS
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.topology import EVALUATOR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from herd.config.run import RunSettings
    from herd.service.signals import SignalInbox

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
        [*PYTHON, "-m", "herd.cli.main", "train", "/dev/stdin", *(["--resume"] if settings.resume else [])],
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


GRACE_SECONDS = 10.0
"""Longest wait for the evaluator after a request to stop."""
_TICK_SECONDS = 0.5


def evaluate_at_the_end(run_dir: Path, inbox: SignalInbox, note: Callable[[str], None]) -> None:
    """Play the newest checkpoint of each agent in a separate process; returns when it has ended, or soon after a request to stop.

    Errors go to ``note``, because the run itself was successful.
    """
    log = run_dir / LOGS / f"{EVALUATOR.name}-final.log"
    words = [*PYTHON, "-m", EVALUATOR.module, "--config", str(run_dir / CONFIG), "--run_dir", str(run_dir)]
    # Without an interval, the evaluator plays the checkpoints on disk once.
    words += [f"--{EVALUATOR.section}.interval_seconds", "null"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    # It connects to no other process, so it needs no keys.
    words += ["--security.curve_keys", "null", "--security.curve_keys_from_environment", "false"]
    note("evaluating the last checkpoint (Ctrl-C skips this)")
    try:
        child = Child(words, variables | {**ALLOCATOR_ENVIRONMENT, "OMP_NUM_THREADS": "1"}, log)
    except OSError as error:
        note(f"the last checkpoint was not evaluated: {error.strerror or error}")
        return
    deadline: float | None = None
    while (code := child.exit_code()) is None:
        if inbox.asked and deadline is None:
            child.send(signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
        if inbox.insisted or (deadline is not None and time.monotonic() >= deadline):
            child.send(signal.SIGKILL)
        inbox.wait(_TICK_SECONDS)
    if code != 0:
        reason = "".join(last_lines(log, 1)) or describe_exit(code)
        note(f"the last checkpoint could not be evaluated: {reason} (log: {log})")
