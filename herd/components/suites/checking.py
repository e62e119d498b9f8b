"""Checks a user's environments in a process of their own, because their code may do anything to its process.

``python -m herd.components.suites.checking ORDER`` is that process. It appends one JSON value a line to a file: what it does next (a text),
or a `Finding`. So the last line tells where a process ended or hung.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from herd.components.suites import suite_of
from herd.components.suites.solo import Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from herd.components.suites import SuiteSettings

Level = Literal["summary", "fine", "note", "problem"]
SUMMARY: Level = "summary"
FINE: Level = "fine"
NOTE: Level = "note"
PROBLEM: Level = "problem"
START_SECONDS = 60.0
"""Longest time in which a process starts and imports an environment's packages, on a busy machine."""
_SHOWN_OUTPUT = 80
_DONE = "done"


class Finding(NamedTuple):
    """One result of a check."""

    level: Level
    """``problem``: it cannot be learned from. ``note``: what its user may not expect. ``summary``: one line about the whole check."""
    what: str
    """One line."""
    advice: str = ""
    """What to do, one line."""


class Effort(NamedTuple):
    """How thorough a check is."""

    steps: int
    """Random steps in each trial."""
    seconds: float
    """Longest time of each trial: the step that exceeds it is the last."""
    is_full: bool
    """Whether everything is checked; otherwise only what decides whether training can begin."""


THOROUGH, QUICK = Effort(2000, 5.0, is_full=True), Effort(100, 0.5, is_full=False)


class Check(Protocol):
    """A suite's own check."""

    def __call__(self, settings: Any, task: str, effort: Effort, /) -> Iterator[Finding | str]:
        """Check a task; yield findings, and what is done next as a text."""


def check_task(settings: SuiteSettings, task: str, effort: Effort) -> list[Finding]:
    """Check one task of a suite with `Suite.check` in a new process; the wait is bounded."""
    timeout_seconds = START_SECONDS + 10 * effort.seconds + settings.longest_step_seconds(1)
    with TemporaryDirectory(prefix="herd-check-", ignore_cleanup_errors=True) as folder:
        report, output = Path(folder, "report"), Path(folder, "output")
        order = {"check": Order.to_call(suite_of(settings).check, settings, task), "effort": effort, "report": str(report)}
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=0,  # with the children of the environment it can be killed
            )
        hung = False
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        printed = output.read_bytes()
    findings = [Finding(*line) for line in lines if isinstance(line, list)]
    phase = next((line for line in reversed(lines) if isinstance(line, str)), "starting")
    if hung:
        findings.append(Finding(PROBLEM, f"{task}: {phase}: no answer within {timeout_seconds:g} s"))
    elif code or phase != _DONE:
        ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended itself with code {code}"
        findings.append(Finding(PROBLEM, f"{task}: {phase}: its process {ended}{_last_words(printed)}"))
    elif printed:
        prints = f"{task}: it prints, {len(printed):,} bytes so far{_last_words(printed)}"
        findings.append(Finding(NOTE, prints, "what it prints is in the log of each actor; let it print nothing in step() and reset()"))
    return findings


def _last_words(printed: bytes) -> str:
    lines = printed.decode(errors="replace").split("\n")
    last = next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")
    return f", at last {last[:_SHOWN_OUTPUT]!r}" if last else ""


def main(order: dict[str, Any]) -> int:
    """Check, in the process of the environment; 0 once everything is reported."""
    # Opened before any code of the user's, which may change the working directory. Each line is written at once.
    with Path(order["report"]).open("a", encoding="utf-8", buffering=1) as report:
        os.set_inheritable(report.fileno(), False)
        for found in Order(*order["check"]).carry_out(Effort(*order["effort"])):
            print(json.dumps(found), file=report)
        print(json.dumps(_DONE), file=report)
    sys.stdout.flush()
    os._exit(0)  # threads that the environment left must not keep the process


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
