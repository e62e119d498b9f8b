"""``python -m benchmarks.gpu`` (``make gpu``): everything that is measured and tested on a machine with a GPU, in one command.

Parts, each in a process of its own and with a time limit, about 16 minutes together on an H100 with 16 cores:

- ``tests``: the tests marked ``gpu``
- ``networks``: the device's ceilings, and the torsos by rows, precision, memory layout and compilation
- ``updates``: the learner's update alone
- ``learner``: the learner over the wire, fed by made-up actors
- ``runs``: ``herd train`` with real actors on 1 to 14 cores, with the policy in the actors and with central inference

Every part writes OUTPUT/PART.json after each of its cases, and a summary OUTPUT/README.md follows. What has a result is not measured again,
so an interrupted command goes on where it was; ``--again`` starts from nothing. ``--small`` does a little of everything on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.records import run_cases
from benchmarks.gpu.report import write_report

if TYPE_CHECKING:
    from benchmarks.gpu.records import Cases

ROOT = Path(__file__).parents[2]
DEFAULT_OUTPUT = ROOT / "benchmarks" / "results" / "gpu"
LIMIT_SECONDS = {"tests": 300, "networks": 180, "updates": 360, "learner": 240, "runs": 540}
"""Of each part on an H100 with 16 cores: twice its usual time, so that a part that hangs does not take the others' time."""
STOP_SECONDS = 30.0
TEST_PROCESSES = min(8, os.cpu_count() or 1)

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Each test computes on the CPU too; several with as many threads as cores would take a minute each."""


def main(words: list[str]) -> int:
    """Run the parts; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=LIMIT_SECONDS, default=list(LIMIT_SECONDS))
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--again", action="store_true", help="forget the results of these parts first")
    parser.add_argument("--small", action="store_true", help="tiny sizes on the CPU, to see that everything runs")
    parser.add_argument("--here", action="store_true", help="run one part in this process, without a limit")
    options = parser.parse_args(words)
    if options.again:
        for part in options.parts:
            (options.output / f"{part}.json").unlink(missing_ok=True)
    failed = []
    for part in options.parts:
        if options.here:
            measure(part, options.output, is_small=options.small)
            continue
        command = [sys.executable, "-m", "benchmarks.gpu", "--here", "--parts", part, "--output", str(options.output)]
        code = run_part([*command, *(["--small"] if options.small else [])], LIMIT_SECONDS[part])
        if code or not_whole(options.output / f"{part}.json"):
            failed.append(part)
    write_report(options.output)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_part(command: list[str], seconds: float) -> int:
    """Run a part and return its exit code, 124 after ``seconds``. It is interrupted, so that it ends the processes that it started."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return 124


def not_whole(file: Path) -> bool:
    """Return whether a part has no results, or errors among them."""
    return not file.exists() or any("error" in case for case in json.loads(file.read_text())["cases"].values())


def measure(part: str, output: Path, *, is_small: bool) -> None:
    """Run one part in this process."""
    import torch  # noqa: PLC0415  the parent process does without

    from benchmarks.gpu import networks, runs, updates  # noqa: PLC0415

    if not is_small and not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here; --small does a little of everything on the CPU")
    if is_small:
        torch.set_num_threads(1)
    device = torch.device("cpu" if is_small else "cuda")
    name = None if is_small else torch.cuda.get_device_name()
    cases: Cases
    match part:
        case "tests":
            cases = {"gpu": partial(run_tests, output)}
        case "networks":
            cases = networks.cases(device, is_small=is_small, seconds=0.05 if is_small else 0.5)
        case "updates":
            cases = updates.cases(device, is_small=is_small, seconds=0.05 if is_small else 1.5)
        case "learner":
            cases = runs.learner_cases(is_small=is_small, seconds=3.0 if is_small else 9.0)
        case _:
            cases = runs.run_cases_of(is_small=is_small, seconds=2.0 if is_small else 8.0, device=device.type)
    run_cases(output / f"{part}.json", cases, device=name)


def run_tests(output: Path) -> dict[str, Any]:
    """Run the tests marked ``gpu``, several at a time; their output is in tests.log."""
    log = output / "tests.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # pytest-benchmark, where it is installed, warns beside several processes, and warnings are errors.
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", str(TEST_PROCESSES), "--dist", "worksteal", "-p", "no:benchmark", "-q"]
    started = time.monotonic()
    with log.open("w") as file:
        code = subprocess.run(
            [*command, "--durations=15", "tests/gpu"], cwd=ROOT, stdout=file, stderr=file, env={**os.environ, **ONE_THREAD}, check=False
        ).returncode
    last = log.read_text().strip().splitlines()[-1]
    if code:
        raise RuntimeError(f"{last}; see {log}")
    return {"summary": last, "seconds": time.monotonic() - started}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
