"""Writes the files of a run by the product's own functions, without torch or sockets: ``python -m tests.failpoints.writer FOLDER``.

For each line of standard input, an order for `tests.failpoints.child`, a process is forked that writes ``FOLDER/run``. It continues from
the newest checkpoint in a new lineage, as a learner does. A line on standard output promises what it names; the last one is ``exit CODE``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from herd_learner.record.lineage import open_lineage

from herd.config.run import RunSettings
from herd.files import replace_file
from herd.run.checkpoints import newest_checkpoint, verified_contents, write_checkpoint
from herd.run.journals import add_point
from herd.run.paths import REPORT
from herd.run.processes import announce_process, begin_session
from herd.run.settings import keep_settings
from tests.failpoints.child import ORDER, Failpoints

KEPT, ROUNDS = 2, 4
MAX_CURVE_BYTES = 400
"""The curve is thinned beyond, after about every fifth point."""


def files_of(updates: int, lineage: int) -> dict[str, bytes]:
    """The files of a checkpoint; large enough that half of one is not a whole one."""
    return {name: f"{name} {updates} {lineage} ".encode() * 200 for name in ("agent.safetensors", "state.json")}


def write(run_dir: Path) -> None:
    """Write every file."""
    announce_process(run_dir, "writer", 0, metrics_host="127.0.0.1", metrics_port=1)
    begin_session(run_dir)
    keep_settings(run_dir, RunSettings(name="writer", run_dir=run_dir))
    lineage = open_lineage(run_dir)
    promise("lineage", lineage)
    newest = newest_checkpoint(run_dir / "checkpoints")
    first = 1 if newest is None else verified_contents(newest)[0].learner_updates + 1
    for updates in range(first, first + ROUNDS):
        for _ in range(1 + updates % 2):  # every other one is written again, as when a member carries out an order
            write_checkpoint(run_dir / "checkpoints", updates, files_of(updates, lineage), KEPT)
            promise("checkpoint", updates)
        add_point(run_dir, {"env_frames": updates, "wall_seconds": float(updates), "lineage": lineage}, MAX_CURVE_BYTES)
        promise("point", updates)
    replace_file(run_dir / REPORT, f'{{"learner_updates": {updates}}}\n')
    promise("report", updates)


def promise(what: str, number: int) -> None:
    """Say that this is on disk."""
    print(what, number, flush=True)


def main(folder: Path) -> None:
    """Fork a writer for each order."""
    run_dir = folder / "run"
    for order in sys.stdin:
        (folder / ORDER).write_text(order.strip())
        pid = os.fork()
        if pid == 0:
            Failpoints(folder, "writer-0", run_dir).install()
            write(run_dir)
            os._exit(0)
        print("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
