"""``python -m tests.equality REVISION [--experiments catch pong ...] [--updates 200]``: compares training in a revision and in this tree.

REVISION is a git revision, or a folder with a tree. Each tree runs its own ``tests/equality/recorder.py`` in a process of its own on this
machine, because digests differ between machines. The exit code is 1 if a line differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ("catch", "breakout", "dice-catch", "pong", "laser-quick", "popart", "recurrent-replay")


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Yield the folder of a tree; that of a git revision is temporary."""
    if Path(revision).is_dir():
        yield Path(revision).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
        yield Path(folder)


@contextmanager
def recording(tree: Path, experiment: str, num_updates: int, *more: str) -> Iterator[Iterator[str]]:
    """Run a tree's recorder; yields its lines as they come.

    Raises:
        subprocess.CalledProcessError: the recorder failed.
    """
    paths = [tree, *sorted((tree / "services").iterdir())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, str(tree / "tests/equality/recorder.py"), experiment, "--updates", str(num_updates), *more]
    with subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def lines() -> Iterator[str]:
            assert process.stdout is not None
            yield from (line.rstrip() for line in process.stdout)
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, command)

        try:
            yield lines()
        finally:
            process.kill()


def first_difference(old: Path, new: Path, experiment: str, num_updates: int) -> str | None:
    """Return where an experiment's recordings differ first; None if they are equal."""
    with recording(old, experiment, num_updates) as before, recording(new, experiment, num_updates) as after:
        for here, there in zip_longest(before, after, fillvalue=""):
            if here != there:
                names = [own.partition("=")[0] for own, other in zip_longest(here.split(), there.split(), fillvalue="") if own != other]
                return f"{', '.join(names)} differ\n  old {here}\n  new {there}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, and print one line for each experiment."""
    parser = argparse.ArgumentParser(prog="python -m tests.equality")
    parser.add_argument("revision")
    parser.add_argument("--experiments", nargs="+", default=EXPERIMENTS)
    parser.add_argument("--updates", type=int, default=200)
    arguments = parser.parse_args(argv)
    num_different = 0
    with checked_out(arguments.revision) as old:
        for experiment in arguments.experiments:
            difference = first_difference(old, ROOT, experiment, arguments.updates)
            num_different += difference is not None
            print(f"{experiment}: {difference or f'{arguments.updates} updates are equal'}", flush=True)
    return int(num_different > 0)


if __name__ == "__main__":
    sys.exit(main())
