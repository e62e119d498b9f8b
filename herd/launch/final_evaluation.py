"""Evaluates the last checkpoint before ``herd train`` exits, if the run reached its stop condition."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.launch.child import Child, describe_exit, last_lines
from herd.run.paths import CONFIG, LOGS
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.topology import EVALUATOR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from herd.launch.signals import SignalInbox

GRACE_SECONDS = 10.0
"""Longest wait for the evaluator after a request to stop."""
_TICK_SECONDS = 0.5


def evaluate_at_the_end(run_dir: Path, inbox: SignalInbox, note: Callable[[str], None]) -> None:
    """Play the newest checkpoint of each agent in a separate process; returns when it has ended, or soon after a request to stop.

    Errors go to ``note``, because the run itself was successful.
    """
    log = run_dir / LOGS / f"{EVALUATOR.name}-final.log"
    words = [sys.executable, "-m", EVALUATOR.module, "--config", str(run_dir / CONFIG), "--run_dir", str(run_dir)]
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
